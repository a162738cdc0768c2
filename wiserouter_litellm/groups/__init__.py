"""A group, its scopes and candidates, and the selection and attempts of a request."""
