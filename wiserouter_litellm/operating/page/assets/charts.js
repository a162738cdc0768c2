// Charts by uPlot, each with its figures in a table.

import { fromCss, onScheme } from "./colours.js";
import { el, fill, table } from "./dom.js";

const drawn = new Set();
const resized = new ResizeObserver((entries) => entries.forEach((entry) => entry.target.redraw?.()));

onScheme(() => drawn.forEach((chart) => chart.renew()));

/** A chart: `label` says what it shows, to those who do not see it; `figures` opens as a table. */
export class Chart {
  constructor(label, height = 220) {
    this.canvas = el("div", { class: "canvas", role: "img", "aria-label": label });
    this.canvas.redraw = () => this.resize();
    this.legend = el("ul", { class: "legend", "aria-hidden": "true" });
    this.figures = el("div");
    this.details = el("details", {}, el("summary", {}, "Figures as a table"), this.figures);
    this.node = el("figure", {}, this.canvas, this.legend, this.details);
    this.height = height;
    this.label = label;
    drawn.add(this);
    resized.observe(this.canvas);
    this.details.addEventListener("toggle", () => this.fillTable());
  }

  /** Show other data: `options` and `data` are uPlot's, `columns` and `rows` the table's, `label` the sentence. */
  show({ options, data, columns, rows, label }) {
    this.last = { options, data, columns, rows };
    if (label) this.canvas.setAttribute("aria-label", label);
    this.fillTable();
    this.renew();
  }

  renew() {
    if (!this.last || !this.canvas.isConnected) return;
    const { options, data } = this.last;
    this.plot?.destroy();
    fill(this.canvas);
    const size = { width: this.width(), height: this.height };
    const terms = options();
    const setCursor = (plot) => this.write(terms.series, data, plot.cursor.idx);
    const fixed = { padding: [8, 12, 0, 0], legend: { show: false }, hooks: { setCursor: [setCursor] } };
    this.plot = new uPlot({ ...size, ...fixed, ...terms }, data, this.canvas);
    this.write(terms.series, data, null);
  }

  /** Write the legend, with the values at one index of the data where the pointer is on one. */
  write(series, data, index) {
    const text = ({ value, raw: own }, i) => {
      const raw = index === null || index === undefined ? null : (own ?? data[i])[index];
      return raw === null || raw === undefined ? "" : ` ${value(null, raw)}`;
    };
    const items = series.map((one, i) => [one, text(one, i), i]).filter(([{ label }, shown, i]) => label && (i || shown));
    fill(this.legend, items.map(([one, shown]) => el("li", {}, mark(one), el("span", { class: "name" }, one.label), shown)));
  }

  resize() {
    if (!this.plot) return this.renew();
    const width = this.width();
    if (width !== this.plot.width) this.plot.setSize({ width, height: this.height });
  }

  width() {
    return Math.max(200, Math.floor(this.canvas.clientWidth));
  }

  fillTable() {
    if (!this.details.open || !this.last) return;
    fill(this.figures, table(this.label, this.last.columns, this.last.rows()));
  }
}

/** Return the sign of a series: a line as it is drawn, or a dot. */
function mark({ stroke, dash, width, fill: area }) {
  if (!stroke && !area) return null;
  const sign = el("span", { class: width === 0 ? "mark dot" : dash ? "mark line dashed" : width ? "mark line" : "mark" });
  sign.style.color = stroke || area;
  return sign;
}

/** Return the axis of one side, in the colours of the page. */
export function axis(terms = {}) {
  const line = fromCss("--line");
  return {
    stroke: fromCss("--faint"),
    grid: { stroke: line, width: 1 },
    ticks: { stroke: line, width: 1, size: 4 },
    font: "12px system-ui, sans-serif",
    ...terms,
  };
}

/** Return a colour with an alpha of `share`. */
export function faded(colour, share) {
  const alpha = Math.round(255 * share).toString(16).padStart(2, "0");
  return `${colour}${alpha}`;
}
