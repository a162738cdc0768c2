// Code and tables scroll by keyboard where they are wider than the screen; the button of versions is named as it reads.
function reach() {
  for (const box of document.querySelectorAll("pre > code, .md-typeset__scrollwrap")) box.tabIndex = 0;
  for (const button of document.querySelectorAll(".md-version__current")) {
    button.setAttribute("aria-label", `${button.textContent.trim()}, select version`);
  }
}

new MutationObserver(reach).observe(document.body, { childList: true, subtree: true });
reach();
