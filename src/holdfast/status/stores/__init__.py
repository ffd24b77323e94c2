"""Where zone statuses are kept; each store fulfils `holdfast.StatusStore`."""
