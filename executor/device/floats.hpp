#pragma once

#include <span>
#include <vector>

#include "executor/device/device.hpp"

// Elements of a tensor of real numbers in a device's memory, as fp32 of the host.
namespace zeroplan::executor {

// Elements [first, first + values). Nothing may run that writes them.
void download_floats(Device& device, const Tensor& tensor, Elements first, std::span<float> values);
// Rounded once, to nearest even.
void upload_floats(Device& device, const Tensor& tensor, Elements first, std::span<const float> values);

// Writes elements one by one, and uploads those that follow each other together.
class FloatWriter {
 public:
  FloatWriter(Device& device, const Tensor& tensor) : device_(device), tensor_(tensor) {}
  ~FloatWriter() { flush(); }
  FloatWriter(const FloatWriter&) = delete;
  FloatWriter& operator=(const FloatWriter&) = delete;

  void put(Elements index, float value);
  void flush();

 private:
  Device& device_;
  Tensor tensor_;
  Elements first_ = 0;
  std::vector<float> values_;
};

}  // namespace zeroplan::executor
