"""What a request asks for: its texts and parameters, and the limits and surcharges that bound its cost."""
