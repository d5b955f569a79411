#pragma once

#include <string_view>

namespace zeroplan::accuracy {

// Whether `text` holds `part`, in any case.
bool mentions(std::string_view text, std::string_view part);

}  // namespace zeroplan::accuracy
