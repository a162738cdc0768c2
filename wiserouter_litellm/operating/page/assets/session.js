// Who asks: the session of LiteLLM's own interface where there is one, else a key that is typed in. The key stays in
// this variable; it is never stored.

let key = "";

export class Refused extends Error {}

/** Return the answer of a route of ours; throws `Refused` where the key does not permit it. */
export async function ask(path, query = {}, options = {}) {
  const url = new URL(path, document.baseURI);
  for (const [name, value] of Object.entries(query)) {
    if (value !== undefined && value !== null && value !== "") url.searchParams.set(name, String(value));
  }
  const headers = { authorization: `Bearer ${key || cookieKey()}`, ...options.headers };
  const answer = await fetch(url, { ...options, headers, credentials: "same-origin", cache: "no-store" });
  const text = await answer.text();
  const body = parsed(text);
  if (answer.ok) return body;
  const error = new (answer.status === 401 || answer.status === 403 ? Refused : Error)(said(body) || answer.statusText);
  error.status = answer.status;
  throw error;
}

/** Send a change; `id` makes a repetition harmless. */
export function send(path, body, id) {
  const headers = { "content-type": "application/json", "idempotency-key": id };
  return ask(path, {}, { method: "POST", headers, body: JSON.stringify(body) });
}

export const use = (typed) => void (key = typed.trim());
export const isKnown = () => Boolean(key || cookieKey());

/** Return the key in the session cookie of LiteLLM's interface, which is a JSON web token that its pages read too. */
function cookieKey() {
  const found = document.cookie.split("; ").find((one) => one.startsWith("token="));
  if (!found) return "";
  try {
    const claims = decodeURIComponent(found.slice(6)).replaceAll('"', "").split(".")[1];
    return String(JSON.parse(atob(claims.replaceAll("-", "+").replaceAll("_", "/"))).key || "");
  } catch {
    return "";
  }
}

function parsed(text) {
  try {
    return JSON.parse(text);
  } catch {
    return {};
  }
}

/** Return the text of an error, as FastAPI or LiteLLM words it. */
function said(body) {
  const detail = body.detail ?? body.error?.message ?? body.error;
  if (typeof detail === "string") return detail;
  if (typeof detail?.message === "string") return detail.message;
  return Array.isArray(detail) ? detail.map((one) => one.msg).join("; ") : "";
}
