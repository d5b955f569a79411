#include "executor/arena.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "executor/canary.hpp"
#include "executor/error.hpp"

namespace zeroplan::executor {

using program::Buffer;
using program::BufferId;
using program::Space;

namespace {

// Behind each instance of an observed block: a cache line, which keeps the alignment of kernels' vectors.
constexpr Bytes kZoneBytes = 64;

}  // namespace

Arena::Arena(Device& device, const program::StepProgram& program, ArenaSize size)
    : device_(device),
      program_(program),
      size_(size),
      observing_(size.observed),
      instances_(program.buffers.size()) {
  for (std::size_t i = 0; i < program.buffers.size(); ++i) {
    const Buffer& buffer = program.buffers[i];
    if (buffer.parent == program::kNoBuffer) {
      instances_[i].assign(static_cast<std::size_t>(buffer.instances), nullptr);
    }
  }
  blocks_[0].capacity = size.device;
  blocks_[1].capacity = size.host;
  for (const Space space : {Space::device, Space::host}) {
    Block& block = blocks_[static_cast<std::size_t>(space)];
    if (!size.contiguous) {
      block.allocator.emplace(device, space);
    } else if (block.capacity > 0) {
      block.memory = device.allocate(block.capacity + zones(space), space);
    }
  }
}

Arena::~Arena() {
  if (blocks_[0].memory != nullptr)
    device_.deallocate(blocks_[0].memory, size_.device + zones(Space::device), Space::device);
  if (blocks_[1].memory != nullptr)
    device_.deallocate(blocks_[1].memory, size_.host + zones(Space::host), Space::host);
}

// All that can be held at once, each with a zone behind it.
Bytes Arena::zones(Space space) const {
  if (!size_.observed || !size_.contiguous) return 0;
  std::int64_t instances = 0;
  for (const Buffer& buffer : program_.buffers) {
    if (buffer.parent == program::kNoBuffer && buffer.space == space) instances += buffer.instances;
  }
  return instances * kZoneBytes;
}

Bytes Arena::reserved(Space space) const {
  const Block& block = blocks_[static_cast<std::size_t>(space)];
  return block.allocator ? block.allocator->reserved() : block.capacity;
}

Arena::Block& Arena::block_of(BufferId buffer) {
  return blocks_[static_cast<std::size_t>(program_.buffers[buffer].space)];
}

std::string Arena::label(BufferId buffer, std::int64_t instance) const {
  return fmt::format("\"{}\" [{}]", program_.buffers[buffer].name, instance);
}

void Arena::acquire(BufferId buffer, std::int64_t instance) {
  const Buffer& description = program_.buffers[buffer];
  if (description.parent != program::kNoBuffer) {
    throw DeviceError(fmt::format("{} is a view and has no memory of its own", label(buffer, instance)));
  }
  std::byte*& memory = instances_[buffer][static_cast<std::size_t>(instance)];
  if (memory != nullptr)
    throw DeviceError(fmt::format("{} is acquired a second time", label(buffer, instance)));
  Block& block = block_of(buffer);
  if (block.used + description.bytes > block.capacity) {
    throw DeviceError(fmt::format("{} of {} bytes was not laid out: {} of the arena's {} bytes are held",
                                  label(buffer, instance), description.bytes, block.used, block.capacity));
  }
  const bool zoned = size_.observed && size_.contiguous;
  const Bytes place = block.used + (zoned ? static_cast<Bytes>(block.held.size()) * kZoneBytes : 0);
  memory = block.allocator ? block.allocator->allocate(description.bytes) : block.memory + place;
  // What the engine alone holds stays untouched, so that it is no part of this process.
  if (observing_ && !description.reserved) canary::plant(memory, description.bytes);
  if (zoned && observing_) canary::plant(memory + description.bytes, kZoneBytes);
  block.used += description.bytes;
  block.by_category[static_cast<std::size_t>(description.category)] += description.bytes;
  block.held.push_back({buffer, instance, ++acquired_});
  if (block.used > block.high_water) {
    block.high_water = block.used;
    block.at_high_water = block.by_category;
    block.written_at_high_water = {};
    block.high_water_number = acquired_;
  }
}

void Arena::count_written(Block& block, const Held& held) {
  if (held.number > block.high_water_number) return;
  const Buffer& description = program_.buffers[held.buffer];
  if (description.reserved) return;
  const std::byte* memory = instances_[held.buffer][static_cast<std::size_t>(held.instance)];
  block.written_at_high_water[static_cast<std::size_t>(description.category)] +=
      canary::written(memory, description.bytes, std::max(size_.unit, program::bytes_of(description.type)));
}

void Arena::check_zone(const Held& held) const {
  if (!size_.observed || !size_.contiguous || (!observing_ && held.number > last_observed_)) return;
  const std::byte* memory = instances_[held.buffer][static_cast<std::size_t>(held.instance)];
  if (canary::is_untouched(memory + program_.buffers[held.buffer].bytes, kZoneBytes)) return;
  throw DeviceError(
      fmt::format("something was written past the end of {}", label(held.buffer, held.instance)));
}

void Arena::end_observation() {
  if (!observing_) return;
  observing_ = false;
  last_observed_ = acquired_;
  for (Block& block : blocks_) {
    for (const Held& held : block.held) count_written(block, held);
  }
}

void Arena::check_held() const {
  for (const Block& block : blocks_) {
    for (const Held& held : block.held) check_zone(held);
  }
}

void Arena::release(BufferId buffer, std::int64_t instance) {
  Block& block = block_of(buffer);
  if (block.held.empty() || block.held.back().buffer != buffer || block.held.back().instance != instance) {
    throw DeviceError(fmt::format("{} is released, but it was not acquired last", label(buffer, instance)));
  }
  const Buffer& description = program_.buffers[buffer];
  check_zone(block.held.back());
  if (observing_) count_written(block, block.held.back());
  block.held.pop_back();
  block.used -= description.bytes;
  block.by_category[static_cast<std::size_t>(description.category)] -= description.bytes;
  std::byte*& memory = instances_[buffer][static_cast<std::size_t>(instance)];
  if (block.allocator) block.allocator->deallocate(memory);
  memory = nullptr;
}

Tensor Arena::tensor(BufferId buffer, std::int64_t instance) const {
  const Buffer& description = program_.buffers[buffer];
  const BufferId holder = program_.holder_of(buffer);
  std::byte* memory = instances_[holder][static_cast<std::size_t>(instance)];
  if (memory == nullptr)
    throw DeviceError(fmt::format("{} is used, but it is not held", label(buffer, instance)));
  if (program_.buffers[holder].reserved)
    throw DeviceError(fmt::format("{} is used, but it is the engine's alone", label(buffer, instance)));
  return {memory + description.offset * program::bytes_of(description.type), description.type,
          description.elements};
}

}  // namespace zeroplan::executor
