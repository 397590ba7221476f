// A chart as SVG. Colours are set in style.css.
const SPACE = "http://www.w3.org/2000/svg";

function element(name, attributes, ...children) {
  const made = document.createElementNS(SPACE, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, String(value));
  made.append(...children);
  return made;
}

const percent = (share) => `${Math.round(100 * share)} %`;

// A line of at least two [x, y] points. `top` is the largest y of the scale.
export function lineChart(label, points, top) {
  const width = 280, height = 72, left = 36, right = 6, above = 6, below = 16;
  const last = Math.max(1, ...points.map((point) => point[0]));
  const first = Math.min(last - 1, ...points.map((point) => point[0]));
  const x = (value) => left + ((value - first) / (last - first)) * (width - left - right);
  const y = (value) => above + (1 - Math.min(value / top, 1)) * (height - above - below);
  const svg = element("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label, class: "chart" });
  for (const tick of [0, top]) {
    svg.append(
      element("line", { x1: left, x2: width - right, y1: y(tick), y2: y(tick), class: "grid" }),
      element("text", { x: left - 6, y: y(tick) + 3.5, "text-anchor": "end" }, percent(tick)),
    );
  }
  svg.append(
    element("text", { x: left, y: height - 3 }, String(Math.round(first))),
    element("text", { x: width - right, y: height - 3, "text-anchor": "end" }, String(last)),
  );
  const path = points.map(([a, b], place) => `${place ? "L" : "M"}${x(a).toFixed(1)} ${y(b).toFixed(1)}`);
  const [a, b] = points.at(-1);
  svg.append(
    element("path", { d: path.join(" "), class: "line" }),
    element("circle", { cx: x(a), cy: y(b), r: 2.5, class: "dot" }),
  );
  return svg;
}
