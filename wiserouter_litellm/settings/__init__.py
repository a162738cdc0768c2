"""The settings `callback_settings.wiserouter` of the proxy's configuration, checked when it starts."""
