"""Keys of a test proxy: one administrator, and any number of users, alone or in a team, who only call models."""

import os

from fastapi import HTTPException
from litellm.proxy._types import LitellmUserRoles, UserAPIKeyAuth


async def auth(request, api_key: str) -> UserAPIKeyAuth:
    """Return the identity behind a key; append worker, path and test id to the file `ASKED_FILE`, where it is set."""
    if "ASKED_FILE" in os.environ:
        line = f"{os.getpid()} {request.url.path} {request.headers.get('x-test-id', '')}\n"
        file = os.open(os.environ["ASKED_FILE"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.write(file, line.encode())
        os.close(file)
    if api_key == os.environ["LITELLM_MASTER_KEY"]:
        return UserAPIKeyAuth(api_key=api_key, user_role=LitellmUserRoles.PROXY_ADMIN)
    if api_key.startswith("sk-user-"):
        return UserAPIKeyAuth(api_key=api_key, user_role=LitellmUserRoles.INTERNAL_USER, user_id=api_key[3:])
    if api_key.startswith("sk-team-"):  # sk-team-a-ann is Ann of team-a
        team, _, user = api_key.removeprefix("sk-").rpartition("-")
        role = LitellmUserRoles.INTERNAL_USER
        tags = {"tags": [f"{team}-tag"]}
        return UserAPIKeyAuth(api_key=api_key, user_role=role, user_id=user, team_id=team, metadata=tags)
    raise HTTPException(401, "unknown key")
