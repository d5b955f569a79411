#pragma once

#include <string_view>
#include <vector>

namespace zeroplan::reports {

// What every page carries, joined when the program is built (join_assets.py).
struct PageAssets {
  // In pieces, as compilers take no string of that length; digests as a content security policy names them, sha256-...
  std::vector<std::string_view> style;
  std::string_view style_digest;
  std::vector<std::string_view> script;  // empty: built without Vega, pages have tables only
  std::string_view script_digest;
};
const PageAssets& page_assets();

}  // namespace zeroplan::reports
