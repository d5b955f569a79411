#pragma once

#include <cstdlib>
#include <string>

namespace zeroplan::test {

// A made-up machine of tests/fake_nvml while this object lives. ZEROPLAN_FAKE_NVML in the sources is the folder of its
// libraries.
class FakeNvml {
 public:
  explicit FakeNvml(const std::string& machine) { ::setenv(kVariable, machine.c_str(), 1); }
  ~FakeNvml() { ::unsetenv(kVariable); }
  FakeNvml(const FakeNvml&) = delete;
  FakeNvml& operator=(const FakeNvml&) = delete;

 private:
  static constexpr const char* kVariable = "ZEROPLAN_FAKE_NVML";
};

inline const std::string kNewNvml = ZEROPLAN_FAKE_NVML "/new/libnvidia-ml.so.1";
inline const std::string kOldNvml = ZEROPLAN_FAKE_NVML "/old/libnvidia-ml.so.1";

}  // namespace zeroplan::test
