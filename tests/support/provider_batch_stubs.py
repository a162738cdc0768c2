"""The batch services of Anthropic and Gemini on sockets of 127.0.0.1, by their published routes and layouts."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler

from support.batch_stub import BatchStub, Service, anthropic_line, batch_stub, gemini_line, price_of


class FileService(Service, BaseHTTPRequestHandler):
    """What both have in common."""

    def ends(self, name: str) -> bool:
        """Return whether a batch has been asked for as often as it takes."""
        self.stub.asked[name] = self.stub.asked.get(name, 0) + 1
        return self.stub.asked[name] >= self.stub.polls and not self.stub.held

    def results(self, line, ids, model) -> bytes:
        """Answer requests in another order, and bill them."""
        lines = []
        for at, name in reversed(list(enumerate(ids))):
            fault = self.stub.fault(at, name)
            self.stub.ledger_usd += 0.0 if fault else price_of(model, name)
            lines.append(json.dumps(line(name, model, fault)))
        return "\n".join(lines).encode()


class AnthropicHandler(FileService):
    """https://docs.anthropic.com/en/api/creating-message-batches and the pages beside it."""

    def shown(self, name: str) -> dict:
        """Return a batch as it stands: requests are counted by what became of them."""
        batch = self.stub.batches[name]
        counts = dict.fromkeys(("processing", "succeeded", "errored", "canceled", "expired"), 0)
        counts["succeeded" if batch["ended"] else "processing"] = len(batch["requests"])
        url = f"{self.stub.url}/v1/messages/batches/{name}/results" if batch["ended"] else None
        status = "ended" if batch["ended"] else "in_progress"
        return {
            "id": name,
            "type": "message_batch",
            "processing_status": status,
            "request_counts": counts,
            "results_url": url,
        }

    def do_POST(self) -> None:
        """Make a batch of the requests themselves."""
        assert (self.headers["x-api-key"], self.headers["anthropic-version"]) == ("secret", "2023-06-01")
        requests, stub = json.loads(self.body())["requests"], self.stub
        with stub.lock:
            assert self.path == "/v1/messages/batches"
            if stub.refuses:
                return self.answer({"type": "error", "error": {"message": "bad file"}}, 400)
            name = f"msgbatch_{len(stub.batches)}"
            stub.batches[name] = {"requests": requests, "ended": False}
            return self.made(self.shown(name))

    def do_GET(self) -> None:
        """Send a batch, its results, or a page of one batch from the newest on."""
        with self.stub.lock:
            route, _, query = self.path.partition("?")
            parts = route.split("/")[4:]
            if not parts:
                names = list(reversed(self.stub.batches))
                after = next((one.partition("=")[2] for one in query.split("&") if one.startswith("after_id=")), "")
                page = names[names.index(after) + 1 :] if after else names
                more = {"first_id": page[0] if page else None, "last_id": page[0] if page else None}
                return self.answer({"data": [self.shown(one) for one in page[:1]], "has_more": len(page) > 1, **more})
            batch = self.stub.batches[parts[0]]
            if len(parts) > 1:
                return self.answer(batch["results"])
            if not batch["ended"] and self.ends(parts[0]):
                ids, model = (
                    [one["custom_id"] for one in batch["requests"]],
                    batch["requests"][0]["params"]["model"],
                )
                batch |= {"ended": True, "results": self.results(anthropic_line, ids, model)}
            return self.answer(self.shown(parts[0]))


class GeminiHandler(FileService):
    """https://ai.google.dev/gemini-api/docs/batch-api, and https://ai.google.dev/api/files for uploads."""

    def do_POST(self) -> None:
        """Begin or end an upload, or make a batch of an uploaded file."""
        assert self.headers["x-goog-api-key"] == "secret"
        data, stub = self.body(), self.stub
        with stub.lock:
            if self.path == "/upload/v1beta/files":
                asked = {name: self.headers[f"x-goog-upload-{name}"] for name in ("protocol", "command")}
                assert asked == {"protocol": "resumable", "command": "start"}
                length = self.headers["x-goog-upload-header-content-length"]
                return self.answer({}, x_goog_upload_url=f"{stub.url}/upload/v1beta/files?upload_id={length}")
            if self.path.startswith("/upload/"):
                assert (self.headers["x-goog-upload-command"], self.path.rpartition("=")[2]) == (
                    "upload, finalize",
                    str(len(data)),
                )
                return self.answer({"file": {"name": "files/" + stub.keep(data)}})
            model = self.path.removeprefix("/v1beta/models/").removesuffix(":batchGenerateContent")
            batch = json.loads(data)["batch"]
            name = f"batches/{len(stub.batches)}"
            metadata = {
                "displayName": batch["display_name"],
                "model": f"models/{model}",
                "state": "BATCH_STATE_PENDING",
            }
            stub.batches[name] = {"name": name, "metadata": metadata, "input": batch["input_config"]["file_name"]}
            return self.made({"name": name, "metadata": metadata})

    def do_GET(self) -> None:
        """Send a file, a batch, or the list of batches."""
        stub = self.stub
        with stub.lock:
            route = self.path.partition("?")[0]
            if route.startswith("/download/"):
                assert self.path.endswith(":download?alt=media")
                return self.answer(stub.files[route.removeprefix("/download/v1beta/files/").removesuffix(":download")])
            if route == "/v1beta/batches":
                return self.answer({"operations": list(stub.batches.values())})
            batch = stub.batches[route.removeprefix("/v1beta/")]
            if batch["metadata"]["state"] == "BATCH_STATE_PENDING" and self.ends(batch["name"]):
                self.finish(batch)
            return self.answer(batch)

    def finish(self, batch: dict) -> None:
        """Answer the requests of a batch, or refuse its file."""
        if self.stub.refuses:
            batch["metadata"]["state"] = "BATCH_STATE_FAILED"
            batch |= {"done": True, "error": {"code": 3, "message": "bad file"}}
            return
        lines = self.stub.files[batch["input"].removeprefix("files/")].decode().splitlines()
        ids, model = [json.loads(line)["key"] for line in lines], batch["metadata"]["model"].removeprefix("models/")
        batch["metadata"]["state"] = "BATCH_STATE_SUCCEEDED"
        output = "files/" + self.stub.keep(self.results(gemini_line, ids, model))
        batch |= {"done": True, "response": {"responsesFile": output}}


@contextmanager
def provider_stub(handler: type[Service], **behaviour) -> Iterator[BatchStub]:
    """Run a service while the block runs."""
    with batch_stub(handler, **behaviour) as stub:
        stub.url = stub.url.removesuffix("/v1")
        yield stub
