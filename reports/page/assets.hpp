#pragma once

#include <string_view>

namespace zeroplan::reports {

// What every page carries, joined when the program is built (join_assets.py).
struct PageAssets {
  std::string_view style, style_digest;    // the digest as a content security policy names it: sha256-...
  std::string_view script, script_digest;  // empty: built without Vega, pages have tables only
};
const PageAssets& page_assets();

}  // namespace zeroplan::reports
