"""What runs cost: device-hours, prices and energy."""
