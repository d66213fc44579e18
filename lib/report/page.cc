#include "lib/report/page.h"

namespace fusionllm::report {

// c0 to c7 are distinguished by people with the common kinds of colour blindness, on light and on dark.
const char kStyle[] = R"css(
:root { color-scheme: light dark;
  --page: #f7f7f5; --card: #ffffff; --ink: #1c1c1a; --soft: #5f5e5a; --rule: #e3e2dd; --wait: #e9e8e3;
  --c0: #2a78d6; --c1: #e0632b; --c2: #1a9e70; --c3: #7a5bd0; --c4: #b98500; --c5: #cf4f83; --c6: #0f8f9c; --c7: #7b7a74; }
@media (prefers-color-scheme: dark) { :root {
  --page: #161615; --card: #1f1f1d; --ink: #efeeea; --soft: #a9a8a1; --rule: #383733; --wait: #2d2d2a;
  --c0: #4b93ea; --c1: #e8774a; --c2: #2fb384; --c3: #9f8bee; --c4: #d1a02c; --c5: #e0729f; --c6: #35aab6; --c7: #96958e; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--page); color: var(--ink); font: 15px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; }
main { max-width: 1180px; margin: 0 auto; padding: 28px 20px 60px; }
h1 { font-size: 26px; margin: 0 0 4px; } h2 { font-size: 19px; margin: 34px 0 10px; } h3 { font-size: 15px; margin: 22px 0 8px; }
p { margin: 6px 0 12px; max-width: 80ch; } .soft { color: var(--soft); }
section, .card { background: var(--card); border: 1px solid var(--rule); border-radius: 10px; padding: 6px 20px 18px; margin: 16px 0; }
section > h2 { margin-top: 12px; }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(126px, 1fr)); gap: 12px; margin: 16px 0; }
.tile { background: var(--card); border: 1px solid var(--rule); border-radius: 10px; padding: 12px 14px; }
.tile b { display: block; font-size: 23px; font-weight: 600; line-height: 1.25; } .tile span { color: var(--soft); font-size: 13px; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-size: 14px; font-variant-numeric: tabular-nums; }
th { text-align: left; color: var(--soft); font-weight: 500; font-size: 13px; } th, td { padding: 6px 14px 6px 0; border-bottom: 1px solid var(--rule); vertical-align: top; }
#comparison td:first-child { white-space: nowrap; }
tbody tr:last-child td { border-bottom: 0; } .r { text-align: right; }
td .bar { display: inline-block; width: 90px; height: 8px; border-radius: 4px; background: var(--wait); margin-right: 8px; overflow: hidden; vertical-align: 1px; }
td .bar i { display: block; height: 100%; }
figure { margin: 0; position: relative; overflow-x: auto; overflow-y: hidden; } figure.chart svg, figure.timeline svg { min-width: 620px; }
.pair { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(420px, 100%), 1fr)); gap: 12px 24px; } .pair figure.chart svg { min-width: 340px; }
pre { overflow-x: auto; font-size: 13px; } code, pre { font-family: ui-monospace, Menlo, Consolas, monospace; } code { overflow-wrap: anywhere; }
#time-to-loss table { width: auto; } #time-to-loss th, #time-to-loss td { padding-right: 28px; }
.figures td:first-child { white-space: nowrap; } .figures td:nth-child(2), .figures td:nth-child(3) { min-width: 9em; } .figures td:nth-child(4) { min-width: 12em; } svg { width: 100%; height: auto; display: block; } figcaption { margin: 4px 0 8px; font-size: 14px; color: var(--soft); }
.key { display: inline-flex; align-items: center; gap: 6px; margin-right: 18px; color: var(--ink); } .key i { width: 14px; height: 10px; border-radius: 3px; display: inline-block; }
.axis line { stroke: var(--rule); } .axis text { fill: var(--soft); font-size: 12px; }
.line { fill: none; stroke-width: 2; stroke-linejoin: round; } .line.faint { stroke-width: 1.2; opacity: 0.45; } .key i.faint { opacity: 0.45; }
.key i.ring { border: 2px solid var(--soft); border-radius: 50%; width: 10px; }
.key i.ring.st0 { border-color: var(--c0); } .key i.ring.st1 { border-color: var(--c1); } .marker { fill: var(--card); stroke-width: 2; } .cross { stroke: var(--soft); stroke-dasharray: 3 3; }
.tip { position: absolute; pointer-events: none; background: var(--card); border: 1px solid var(--rule); border-radius: 8px; padding: 6px 10px; font-size: 13px;
  box-shadow: 0 2px 10px rgb(0 0 0 / 0.15); white-space: nowrap; z-index: 1; }
.tip div { display: flex; gap: 8px; align-items: center; } .tip i { width: 10px; height: 10px; border-radius: 3px; }
.timeline .row { fill: var(--ink); font-size: 13px; } .timeline .mb { fill: #fff; font-size: 11px; pointer-events: none; }
.fw { fill: var(--c0); background: var(--c0); } .bw { fill: var(--c1); background: var(--c1); } .up { fill: var(--c2); background: var(--c2); }
.wt { fill: var(--wait); background: var(--wait); } .ev { fill: var(--c3); background: var(--c3); }
.bg0 { background: var(--c0); } .bg1 { background: var(--c1); } .bg2 { background: var(--c2); } .bg3 { background: var(--c3); }
.bg4 { background: var(--c4); } .bg5 { background: var(--c5); } .bg6 { background: var(--c6); } .bg7 { background: var(--c7); }
.st0 { stroke: var(--c0); } .st1 { stroke: var(--c1); } .st2 { stroke: var(--c2); } .st3 { stroke: var(--c3); }
.st4 { stroke: var(--c4); } .st5 { stroke: var(--c5); } .st6 { stroke: var(--c6); } .st7 { stroke: var(--c7); }
@media (max-width: 640px) { main { padding: 16px 10px 40px; } section, .card { padding: 4px 12px 14px; } .tile b { font-size: 20px; } }
.pipeline { margin: 14px 0 6px; } .plan { display: flex; flex-wrap: wrap; align-items: stretch; row-gap: 14px; }
.stage { border: 1px solid var(--rule); border-radius: 8px; width: 128px; overflow: hidden; font-size: 12.5px; } .stage > i { display: block; height: 6px; }
.stage div { padding: 7px 9px 9px; } .stage b { font-size: 14px; } .stage small { display: block; color: var(--soft); font-size: 12px; overflow-wrap: anywhere; }
.hop { width: 64px; align-self: center; text-align: center; font-size: 12px; color: var(--soft); padding: 0 3px; overflow-wrap: anywhere; }
.hop::before { content: ""; display: block; border-top: 2px solid var(--rule); margin: 0 0 4px; } .hop.far::before { border-top: 2px dashed var(--c1); }
.hop.far { color: var(--ink); }
details { margin: 14px 0 0; } summary { cursor: pointer; color: var(--soft); } .graph { background: #fff; border-radius: 8px; padding: 8px; overflow: auto; max-height: 80vh; }
.graph svg { width: auto; max-width: none; }
.events td:first-child { white-space: nowrap; } .bad { color: var(--c1); font-weight: 600; }
)css";

// The crosshair of the charts. data-ready tells a test (and a reader of the source) that the script ran to its end.
const char kScript[] = R"js(
"use strict";
for (const figure of document.querySelectorAll("figure.chart")) {
  const data = JSON.parse(figure.querySelector("script").textContent);
  const svg = figure.querySelector("svg"), cross = figure.querySelector(".cross");
  const keys = [...figure.querySelectorAll(".key")];
  const tip = document.createElement("div");
  tip.className = "tip"; tip.hidden = true; figure.append(tip);
  const nearest = (points, x) => {
    let low = 0, high = points.length - 1;
    while (high - low > 1) { const middle = (low + high) >> 1; if (points[middle][0] < x) low = middle; else high = middle; }
    return points.length === 0 ? null : x - points[low][0] < points[high][0] - x ? points[low] : points[high];
  };
  const hide = () => { tip.hidden = true; cross.setAttribute("visibility", "hidden"); };
  svg.addEventListener("pointerleave", hide);
  svg.addEventListener("pointermove", event => {
    const box = svg.getBoundingClientRect();
    const at = (event.clientX - box.left) / box.width * data.width;
    if (at < data.left || at > data.right) return hide();
    const x = data.low + (at - data.left) / (data.right - data.left) * (data.high - data.low);
    cross.setAttribute("x1", at); cross.setAttribute("x2", at); cross.setAttribute("visibility", "visible");
    tip.replaceChildren();
    data.series.forEach((points, i) => {
      const point = nearest(points, x);
      if (!point || x > points[points.length - 1][0] + (data.high - data.low) * 0.02) return;
      const row = document.createElement("div"), swatch = keys[i].querySelector("i").cloneNode();
      const text = document.createElement("span");
      text.textContent = keys[i].textContent + ": " + point[1] + " at " + point[0];
      row.append(swatch, text); tip.append(row);
    });
    tip.hidden = tip.childElementCount === 0;
    const left = event.clientX - figure.getBoundingClientRect().left;
    tip.style.top = "40px";
    tip.style.left = (left > box.width * 0.6 ? left - tip.offsetWidth - 14 : left + 14) + "px";
  });
}
document.documentElement.dataset.ready = "yes";
)js";

}  // namespace fusionllm::report
