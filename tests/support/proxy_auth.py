"""Keys of a test proxy: one administrator, and any number of others that may only call models."""

import os

from fastapi import HTTPException
from litellm.proxy._types import LitellmUserRoles, UserAPIKeyAuth


async def auth(request, api_key: str) -> UserAPIKeyAuth:
    """Return the identity behind a key."""
    if api_key == os.environ["LITELLM_MASTER_KEY"]:
        return UserAPIKeyAuth(api_key=api_key, user_role=LitellmUserRoles.PROXY_ADMIN)
    if api_key.startswith("sk-user-"):
        return UserAPIKeyAuth(api_key=api_key, user_role=LitellmUserRoles.INTERNAL_USER, user_id=api_key[3:])
    raise HTTPException(401, "unknown key")
