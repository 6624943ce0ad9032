// Light, dark, or as the system is set; the choice is kept in this browser.

const NEXT = { system: "light", light: "dark", dark: "system" };
const KEY = "unmask-theme";

/** Make a button that cycles through the themes; `changed` is called when colors change. */
export function themeButton(button, changed) {
  let theme = localStorage.getItem(KEY);
  if (!(theme in NEXT)) theme = "system";
  const apply = () => {
    if (theme === "system") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = theme;
    button.textContent = `Theme: ${theme}`;
    button.setAttribute("aria-label", `Theme: ${theme}. Change to ${NEXT[theme]}`);
    changed();
  };
  button.addEventListener("click", () => {
    theme = NEXT[theme];
    localStorage.setItem(KEY, theme);
    apply();
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", changed);
  apply();
}
