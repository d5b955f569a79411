#!/usr/bin/env python3
"""Joins what a page of `zeroplan report` carries into one C++ file: the style sheet, and one script of Vega's modules and page.js.

    join_assets.py FOLDER_OF_VEGA STYLE SCRIPT OUTPUT

Each module of Debian's libjs-vega is a CommonJS module of its own; a small loader gives each what it requires. Without the
folder the page has no pictures, and its tables say everything. The digests are for the page's content security policy.
"""

import base64
import hashlib
import pathlib
import sys

# What a page needs of Vega, with the names under which modules require each other.
MODULES = {
    "vega-util": "vega-util", "vega-time": "vega-time", "vega-format": "vega-format", "vega-loader": "vega-loader",
    "vega-dataflow": "vega-dataflow", "vega-statistics": "vega-statistics", "vega-transforms": "vega-transforms",
    "vega-view-transforms": "vega-view-transforms", "vega-scale": "vega-scale", "vega-canvas": "vega-canvas",
    "vega-scenegraph": "vega-scenegraph", "vega-expression": "vega-expression", "vega-selection": "vega-selections",
    "vega-functions": "vega-functions", "vega-encode": "vega-encode", "vega-event-selector": "vega-event-selector",
    "vega-parser": "vega-parser", "vega-runtime": "vega-runtime", "vega-view": "vega-view",
    "vega-interpreter": "vega-interpreter",
}
LOADER = """(function(){
var sources={%s},loaded={};
function require(name){
  if(loaded[name])return loaded[name].exports;
  if(!sources[name])return {};
  var module=loaded[name]={exports:{}};
  sources[name](module.exports,require,module);
  return module.exports;
}
%s})();
"""
PIECE = 12_000  # of a string literal, of which compilers join few: one is at most 65,536 long in standard C++


def literals(text):
    assert ')zp"' not in text
    return ",\n".join(f'R"zp({text[i:i + PIECE]})zp"' for i in range(0, len(text), PIECE))


def digest(text):
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def script_of(folder, page):
    if not folder.is_dir():
        return ""
    sources = []
    for file, name in MODULES.items():
        text = (folder / f"{file}.min.js").read_text(encoding="utf-8")
        text = "\n".join(line for line in text.splitlines() if not line.startswith("//# sourceMappingURL"))
        sources.append(f'"{name}":function(exports,require,module){{{text}\n}}')
    script = LOADER % (",\n".join(sources), page)
    return script.replace("</script", "<\\/script")


def main():
    folder, style_file, page_file, output = map(pathlib.Path, sys.argv[1:])
    style = style_file.read_text(encoding="utf-8")
    script = script_of(folder, page_file.read_text(encoding="utf-8"))
    output.write_text(f"""#include "reports/page/assets.hpp"

namespace zeroplan::reports {{
const PageAssets& page_assets() {{
  static const PageAssets assets{{
      {{{literals(style)}}},
      "{digest(style)}",
      {{{literals(script)}}},
      "{digest(script)}"}};
  return assets;
}}
}}  // namespace zeroplan::reports
""", encoding="utf-8")


if __name__ == "__main__":
    main()
