"""Keys of a test proxy: the administrator, one who may only view, and members of teams of any name."""

import os
from urllib.parse import unquote

from fastapi import HTTPException
from litellm.proxy._types import LitellmUserRoles, UserAPIKeyAuth


async def auth(request, api_key: str) -> UserAPIKeyAuth:
    """Return the identity behind a key; `sk-of-NAME` is a member of the team of that name, which is percent-encoded."""
    if api_key == os.environ["LITELLM_MASTER_KEY"]:
        return UserAPIKeyAuth(api_key=api_key, user_id="ann", user_role=LitellmUserRoles.PROXY_ADMIN)
    if api_key == "sk-viewer":
        return UserAPIKeyAuth(api_key=api_key, user_id="vic", user_role=LitellmUserRoles.PROXY_ADMIN_VIEW_ONLY)
    if api_key.startswith("sk-of-"):
        team = unquote(api_key.removeprefix("sk-of-"))
        return UserAPIKeyAuth(api_key=api_key, user_role=LitellmUserRoles.INTERNAL_USER, team_id=team)
    raise HTTPException(401, "unknown key")
