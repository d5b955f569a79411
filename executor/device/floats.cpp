#include "executor/device/floats.hpp"

#include "executor/half_arrays.hpp"

namespace zeroplan::executor {

namespace {

constexpr std::size_t kBlock = 1 << 16;

std::byte* place_of(const Tensor& tensor, Elements first) {
  return tensor.data + first * program::bytes_of(tensor.type);
}

}  // namespace

void download_floats(Device& device, const Tensor& tensor, Elements first, std::span<float> values) {
  if (tensor.type == program::DataType::fp32)
    return device.download(std::as_writable_bytes(values), place_of(tensor, first));
  std::vector<std::uint16_t> halves(values.size());
  device.download(std::as_writable_bytes(std::span(halves)), place_of(tensor, first));
  floats_from_halves(tensor.type, halves.data(), values.data(), static_cast<Elements>(values.size()));
}

void upload_floats(Device& device, const Tensor& tensor, Elements first, std::span<const float> values) {
  constexpr auto kStream = program::Stream::compute;
  if (tensor.type == program::DataType::fp32)
    return device.upload(place_of(tensor, first), std::as_bytes(values), kStream);
  std::vector<std::uint16_t> halves(values.size());
  halves_from_floats(tensor.type, values.data(), halves.data(), static_cast<Elements>(values.size()));
  device.upload(place_of(tensor, first), std::as_bytes(std::span(halves)), kStream);
}

void FloatWriter::put(Elements index, float value) {
  if (index != first_ + static_cast<Elements>(values_.size()) || values_.size() == kBlock) flush();
  if (values_.empty()) first_ = index;
  values_.push_back(value);
}

void FloatWriter::flush() {
  if (!values_.empty()) upload_floats(device_, tensor_, first_, values_);
  values_.clear();
}

}  // namespace zeroplan::executor
