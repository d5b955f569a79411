// Draws the charts of a page. Each <figure> holds a Vega specification as data; the width is the figure's, so that text keeps
// its size, and expressions are interpreted, so that the page's policy can forbid eval.
var vega = {};
["vega-dataflow", "vega-transforms", "vega-view-transforms", "vega-encode", "vega-parser", "vega-runtime", "vega-view"].forEach(
  function (name) { vega[name] = require(name); });
var registry = vega["vega-dataflow"].transforms;
["vega-transforms", "vega-view-transforms", "vega-encode"].forEach(function (name) {
  var transforms = vega[name];
  Object.keys(transforms).forEach(function (key) { registry[key] = transforms[key]; });
});
var interpreter = require("vega-interpreter").expressionInterpreter;
var style = {
  background: null,
  font: "system-ui, sans-serif",
  axis: { labelColor: "currentColor", titleColor: "currentColor", gridColor: "currentColor", gridOpacity: 0.15,
          domainColor: "currentColor", tickColor: "currentColor", labelFontSize: 12, titleFontSize: 12,
          titleFontWeight: "normal", labelLimit: 150 },
  legend: { labelColor: "currentColor", titleColor: "currentColor", labelFontSize: 12, symbolType: "square", labelLimit: 200 },
  title: { color: "currentColor" },
  text: { fill: "currentColor", fontSize: 12 },
};

function draw(figure) {
  var source = figure.querySelector("script[type='application/json']");
  var place = figure.querySelector(".chart");
  var specification = JSON.parse(source.textContent);
  var width = place.clientWidth;
  if (width === 0) return;
  specification.width = width;
  place.textContent = "";
  var runtime = vega["vega-parser"].parse(specification, style, { ast: true });
  new vega["vega-view"].View(runtime, { expr: interpreter, renderer: "svg", container: place, hover: true })
    .runAsync().then(function () {
      var svg = place.querySelector("svg");
      svg.setAttribute("role", "img");
      svg.setAttribute("aria-label", figure.querySelector("figcaption").textContent + ". " + figure.querySelector(".about").textContent);
      figure.classList.add("drawn");
    });
  place.dataset.width = width;
}

function draw_all() {
  document.querySelectorAll("figure.has-chart").forEach(function (figure) {
    if (String(figure.querySelector(".chart").clientWidth) !== figure.querySelector(".chart").dataset.width) draw(figure);
  });
}

document.addEventListener("DOMContentLoaded", draw_all);
var waiting = 0;
window.addEventListener("resize", function () {
  clearTimeout(waiting);
  waiting = setTimeout(draw_all, 150);
});
