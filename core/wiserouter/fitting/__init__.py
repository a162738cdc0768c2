"""From a log of past calls to contexts and estimates."""
