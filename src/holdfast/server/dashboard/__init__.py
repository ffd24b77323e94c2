"""The page that shows the live state of zones: three files, without a build step or requests to other hosts."""
