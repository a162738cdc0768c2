"""Pages that are generated: the API, the options of every command, the proxy's settings, and the metrics."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from support.docs_site import api
from support.docs_site.pages import write


def stage(folder: Path) -> None:
    """Write the pages of the reference into a folder."""
    for name in api.PACKAGES:
        write(folder / "reference" / f"{name}.md", api.page(name))
    write(folder / "reference" / "errors.md", api.error_page())
    write(folder / "reference" / "commands.md", commands())
    write(folder / "reference" / "settings.md", settings())
    write(folder / "reference" / "metrics.md", metrics())


def commands() -> str:
    """Return the help of every command as Markdown, by typer."""
    import typer
    from typer.cli import get_docs_for_click

    from wiserouter.cli import app

    command = typer.main.get_command(app)
    context = command.context_class(command, info_name="wiserouter")
    text = get_docs_for_click(obj=command, ctx=context, name="wiserouter")
    return text.replace("# `wiserouter`", "# Options of each command", 1)


def settings() -> str:
    """Return the settings of the proxy by block, from the models that check them."""
    from wiserouter_litellm.settings.proxy_settings import Settings

    schema = Settings.model_json_schema(by_alias=True)
    blocks = {"Settings": schema} | schema["$defs"]
    head = (
        "# Settings of the proxy\n\nThe keys below `callback_settings: wiserouter:` in the `config.yaml` of the proxy. "
        "An unknown key is refused. [LiteLLM](../litellm.md) shows them at work.\n"
    )
    return head + "".join(block(name, blocks[name]) for name in blocks)


def block(name: str, schema: dict[str, Any]) -> str:
    """Return one block of settings as a table."""
    if "properties" not in schema:
        return ""
    described = dict(attributes(name))
    rows = "".join(
        f"| `{key}` | {api.cell(kind(one))} | {default(key, one, schema)} | {api.cell(described.get(key, ''))} |\n"
        for key, one in schema["properties"].items()
    )
    title = api.flat(schema.get("description", "").split("\n\n")[0])
    return f"\n## {name}\n\n{title}\n\n| key | value | default | |\n|---|---|---|---|\n{rows}"


def attributes(name: str) -> Iterator[tuple[str, str]]:
    """Yield the descriptions of the keys of a block, those of its bases included; `url, project` describes both."""
    from wiserouter_litellm.settings import alert_settings, budget_settings
    from wiserouter_litellm.settings import proxy_settings as of_proxy

    model = next(getattr(home, name) for home in (of_proxy, budget_settings, alert_settings) if hasattr(home, name))
    for one in reversed(model.__mro__):
        if not one.__module__.startswith("wiserouter_litellm"):
            continue
        parsed = api.package("wiserouter_litellm")[one.__module__.partition(".")[2]][one.__name__].docstring
        for part in parsed.parsed if parsed else []:
            if part.kind.value == "attributes":
                yield from ((key.strip(), item.description) for item in part.value for key in item.name.split(","))


def kind(schema: dict[str, Any]) -> str:
    """Return the type of a value in words."""
    if several := schema.get("anyOf") or schema.get("oneOf"):
        return " or ".join(kind(one) for one in several if one.get("type") != "null")
    if "$ref" in schema:
        name = schema["$ref"].rsplit("/", 1)[1]
        return f"[{name}](#{name.lower()})"
    if words := schema.get("enum") or [schema[key] for key in ("const",) if key in schema]:
        return " or ".join(f"`{one}`" for one in words)
    return of_many(schema) if schema.get("type") in {"array", "object"} else bounded(schema)


def of_many(schema: dict[str, Any]) -> str:
    """Return the type of a list or of a mapping in words."""
    if schema["type"] == "array":
        return f"list of {kind(schema.get('items', {}))}"
    values = schema.get("additionalProperties")
    return f"by name: {kind(values)}" if isinstance(values, dict) else "mapping"


def bounded(schema: dict[str, Any]) -> str:
    """Return a plain type with its bounds."""
    words = {"minimum": "at least", "exclusiveMinimum": "above", "maximum": "at most", "exclusiveMaximum": "below"}
    bounds = " and ".join(f"{word} {schema[key]}" for key, word in words.items() if key in schema)
    return " ".join(one for one in (schema.get("type", "any"), bounds) if one)


def default(key: str, one: dict[str, Any], schema: dict[str, Any]) -> str:
    """Return the default of a key."""
    if key in schema.get("required", ()):
        return "required"
    return "" if one.get("default") is None else f"`{one['default']}`"


def metrics() -> str:
    """Return the metrics of one router as Prometheus reads them."""
    from prometheus_client import CollectorRegistry

    from wiserouter.operating.metrics import Metrics

    registry = CollectorRegistry()
    Metrics(registry)
    families = sorted((one for one in registry.collect()), key=lambda one: one.name)
    rows = "".join(f"| `{sample_name(one)}` | {one.type} | {api.cell(one.documentation)} |\n" for one in families)
    return (
        "# Metrics\n\nEach worker shows these to Prometheus; [Operating](../operating.md) says what their values mean, "
        "and has their labels.\n\n"
        f"| metric | type | |\n|---|---|---|\n{rows}"
    )


def sample_name(family: Any) -> str:
    """Return the name of a metric in queries; that of a counter ends in `_total`."""
    return f"{family.name}_total" if family.type == "counter" else family.name
