"""Actions of evacuation: one module each, which implements `holdfast.evacuate.action.Action`."""
