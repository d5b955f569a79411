#pragma once

#include <string_view>

namespace zeroplan::accuracy {

// Whether `text` holds `part`, in any case.
bool mentions(std::string_view text, std::string_view part);

// Whether a date that begins with a year, and perhaps a month ("2021-05/07"), is before `limit` ("2021",
// "2021-07"), as far as both are stated. Words that are no date are not.
bool is_before(std::string_view date, std::string_view limit);

}  // namespace zeroplan::accuracy
