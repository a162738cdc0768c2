// Code and tables scroll by keyboard where they are wider than the screen; the button of versions is named as it reads.
function reach() {
  for (const box of document.querySelectorAll("pre > code, .md-typeset__scrollwrap")) {
    if (!box.hasAttribute("tabindex")) box.tabIndex = 0;
  }
  for (const button of document.querySelectorAll(".md-version__current")) {
    button.setAttribute("aria-label", `${button.textContent.trim()}, select version`);
  }
}

// the theme takes it from code that fits, and does not always give it back when the window gets narrower
new MutationObserver(reach).observe(document.documentElement, {
  attributeFilter: ["tabindex"],
  childList: true,
  subtree: true,
});
reach();
