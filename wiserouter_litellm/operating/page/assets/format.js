// Figures as texts.

const locale = "en-US";
const money = new Intl.NumberFormat(locale, { style: "currency", currency: "USD" });
const small = new Intl.NumberFormat(locale, {
  style: "currency",
  currency: "USD",
  maximumSignificantDigits: 3,
  minimumSignificantDigits: 2,
});
const whole = new Intl.NumberFormat(locale, { maximumFractionDigits: 0 });
const three = new Intl.NumberFormat(locale, { maximumSignificantDigits: 3 });
const short = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "short" });

export const NONE = "–";

const known = (value) => typeof value === "number" && Number.isFinite(value);

export function usd(value) {
  if (!known(value)) return NONE;
  return value === 0 || Math.abs(value) >= 1 ? money.format(value) : small.format(value);
}

export const count = (value) => (known(value) ? whole.format(value) : NONE);
export const number = (value) => (known(value) ? three.format(value) : NONE);
export const quality = (value) => (known(value) ? value.toFixed(3) : NONE);

export function percent(value) {
  if (!known(value)) return NONE;
  const hundredths = 100 * value;
  return `${hundredths.toFixed(hundredths > 0 && hundredths < 10 ? 1 : 0)} %`;
}

export const time = (seconds) => (known(seconds) ? short.format(new Date(1000 * seconds)) : NONE);

/** Return a length of time with its two largest units. */
export function duration(seconds) {
  if (!known(seconds)) return NONE;
  const units = [[86400, "d"], [3600, "h"], [60, "min"], [1, "s"]];
  const parts = [];
  let rest = Math.max(0, Math.round(seconds));
  for (const [size, name] of units) {
    if (rest >= size && parts.length < 2) parts.push(`${Math.floor(rest / size)} ${name}`);
    rest %= size;
  }
  return parts.join(" ") || "0 s";
}
