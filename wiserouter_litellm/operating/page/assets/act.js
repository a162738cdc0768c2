// Changes of administrators: each is confirmed in a dialog that says what it does, and sent once.

import { el } from "./dom.js";
import { send } from "./session.js";

/** Return a button that opens a dialog. */
export const action = (text, open, kind = "") => el("button", { type: "button", class: kind, onclick: open }, text);

/** Ask for a change.
 *
 * `fields` are nodes to fill in, `effect` returns what they would do as text, or null where they make no sense yet, and
 * `body` what is sent to `path`; `done` is called once the proxy has accepted it.
 */
export function confirmChange({ title, fields = [], effect, body, path, button, danger = false, done }) {
  const id = onceKey();
  const says = el("p", { "aria-live": "polite" });
  const fault = el("p", { class: "note bad", role: "alert", hidden: true });
  const confirm = el("button", { class: danger ? "danger" : "main" }, button);
  const cancel = el("button", { type: "button", onclick: () => dialog.close() }, "Cancel");
  const form = el("form", {}, el("h2", { id: "dialog-title" }, title), fields, says, fault, el("div", { class: "row" }, confirm, cancel));
  const dialog = el("dialog", { "aria-labelledby": "dialog-title" }, form);
  const renew = () => {
    const text = effect();
    says.textContent = text ?? "";
    confirm.disabled = text === null;
  };
  form.addEventListener("input", renew);
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    confirm.disabled = true;
    try {
      await send(path, body(), id);
      dialog.close();
      done();
    } catch (error) {
      fault.hidden = false;
      fault.textContent = error.message;
      confirm.disabled = false;
    }
  });
  dialog.addEventListener("close", () => dialog.remove());
  renew();
  document.body.append(dialog);
  dialog.showModal();
}

/** Return a labelled field. */
export function field(label, input) {
  const id = `field-${label.toLowerCase().replaceAll(/[^a-z]+/g, "-")}`;
  input.id = id;
  return el("div", { class: "field" }, el("label", { for: id }, label), input);
}

export function choice(options) {
  return el("select", {}, options.map(([value, text]) => el("option", { value }, text)));
}

/** Return a key that the proxy has not seen, by which a repeated change counts once. */
function onceKey() {
  return [...crypto.getRandomValues(new Uint8Array(16))].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}
