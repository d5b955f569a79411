#pragma once

#include <cstdint>
#include <string>

namespace zeroplan::reports {

// 1557611200 as "1,557,611,200".
std::string thousands(std::int64_t value);

// The shortest text that reads back as the same number, always with a point, so that YAML 1.1 takes it for a
// number too: "2.0", "1.5", "1.0e+20". "null" for what is not finite.
std::string shortest(double value);

// "1 GPU", "16 GPUs".
std::string counted(std::int64_t count, const std::string& noun);

// A name of the program with blanks: "optimizer_state" as "optimizer state".
std::string spaced(std::string name);

// A parameter count as people say it: "124M", "1.56B", "1.01T".
std::string short_count(std::int64_t count);

}  // namespace zeroplan::reports
