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
  const program::BlockSizes sizes = block_sizes();
  for (const Space space : {Space::device, Space::host}) {
    Block& block = blocks_[static_cast<std::size_t>(space)];
    if (!size.contiguous) {
      block.allocator.emplace(device, space);
    } else if (block.capacity > 0) {
      block.bytes = space == Space::device ? sizes.device : sizes.host;
      block.memory = {device.allocate(block.bytes, space), GiveBack{&device, block.bytes, space}};
    }
  }
}

// What is asked from the device: with a zone behind each instance more than what was laid out.
program::BlockSizes Arena::block_sizes() const {
  if (!zoned()) return {size_.device, size_.host};
  const program::BlockSizes sizes = program::block_sizes(program_, kZoneBytes);
  program::BlockSizes nested{size_.device, size_.host};
  for (const Buffer& buffer : program_.buffers) {
    if (buffer.parent != program::kNoBuffer) continue;
    (buffer.space == Space::device ? nested.device : nested.host) += buffer.instances * kZoneBytes;
  }
  return {std::max(nested.device, sizes.device), std::max(nested.host, sizes.host)};
}

Bytes Arena::reserved(Space space) const {
  const Block& block = blocks_[static_cast<std::size_t>(space)];
  return block.allocator ? block.allocator->reserved() : block.capacity;
}

Bytes Arena::zone_bytes(Space space) const {
  const Block& block = blocks_[static_cast<std::size_t>(space)];
  return block.memory == nullptr ? 0 : block.bytes - block.capacity;
}

Arena::Block& Arena::block_of(BufferId buffer) {
  return blocks_[static_cast<std::size_t>(program_.buffers[buffer].space)];
}

std::string Arena::label(BufferId buffer, std::int64_t instance) const {
  return fmt::format("\"{}\" [{}]", program_.buffers[buffer].name, instance);
}

Arena::Life Arena::acquire(BufferId buffer, std::int64_t instance) {
  const Buffer& description = program_.buffers[buffer];
  if (description.parent != program::kNoBuffer) {
    throw DeviceError(fmt::format("{} is a view and has no memory of its own", label(buffer, instance)));
  }
  std::byte*& memory = instances_[buffer][static_cast<std::size_t>(instance)];
  if (memory != nullptr)
    throw DeviceError(fmt::format("{} is acquired a second time", label(buffer, instance)));
  Block& block = block_of(buffer);
  const Bytes zone = zoned() ? kZoneBytes : 0;
  if (block.used + description.bytes > block.capacity) {
    throw DeviceError(fmt::format("{} of {} bytes was not laid out: {} of the arena's {} bytes are held",
                                  label(buffer, instance), description.bytes, block.used, block.capacity));
  }
  if (block.allocator) {
    memory = block.allocator->allocate(description.bytes);
  } else {
    const Bytes place = block.places.take(description.bytes + zone);
    if (place + description.bytes + zone > block.bytes) {
      throw DeviceError(fmt::format(
          "{} of {} bytes finds no place in the {} bytes that were laid out: what is held does not "
          "nest, and leaves gaps",
          label(buffer, instance), description.bytes, block.capacity));
    }
    memory = block.memory.get() + place;
  }
  block.used += description.bytes;
  block.by_category[static_cast<std::size_t>(description.category)] += description.bytes;
  block.held.push_back({buffer, instance, memory, ++acquired_, 0});
  if (block.used > block.high_water) {
    block.high_water = block.used;
    block.at_high_water = block.by_category;
    block.high_water_number = acquired_;
  }
  return block.held.back();
}

void Arena::begin_life(const Life& life) {
  if (!observing_) return;
  const Buffer& description = program_.buffers[life.buffer];
  // What the engine alone holds stays untouched, so that it is no part of this process.
  if (!description.reserved) canary::plant(device_, life.memory, description.bytes);
  if (zoned()) canary::plant(device_, life.memory + description.bytes, kZoneBytes);
}

void Arena::end_life(const Life& life) {
  check_zone(life);
  if (observing_ && life.released >= block_of(life.buffer).high_water_number) count_written(life);
}

void Arena::count_written(const Life& life) {
  Block& block = block_of(life.buffer);
  const Buffer& description = program_.buffers[life.buffer];
  if (life.acquired > block.high_water_number || description.reserved) return;
  block.written_at_high_water[static_cast<std::size_t>(description.category)] += canary::written(
      device_, life.memory, description.bytes, std::max(size_.unit, program::bytes_of(description.type)));
}

void Arena::check_zone(const Life& life) const {
  if (!zoned() || (!observing_ && life.acquired > last_observed_)) return;
  const Bytes bytes = program_.buffers[life.buffer].bytes;
  if (canary::written(device_, life.memory + bytes, kZoneBytes, kZoneBytes) == 0) return;
  throw DeviceError(
      fmt::format("something was written past the end of {}", label(life.buffer, life.instance)));
}

void Arena::end_observation() {
  if (!observing_) return;
  observing_ = false;
  last_observed_ = acquired_;
  for (Block& block : blocks_) {
    for (const Life& life : block.held) count_written(life);
  }
}

void Arena::check_held() const {
  for (const Block& block : blocks_) {
    for (const Life& life : block.held) check_zone(life);
  }
}

Arena::Life Arena::release(BufferId buffer, std::int64_t instance) {
  Block& block = block_of(buffer);
  const auto found = std::find_if(block.held.rbegin(), block.held.rend(), [&](const Life& life) {
    return life.buffer == buffer && life.instance == instance;
  });
  if (found == block.held.rend())
    throw DeviceError(fmt::format("{} is released, but it is not held", label(buffer, instance)));
  const Buffer& description = program_.buffers[buffer];
  Life life = *found;
  life.released = acquired_;
  block.held.erase(std::next(found).base());
  block.used -= description.bytes;
  block.by_category[static_cast<std::size_t>(description.category)] -= description.bytes;
  std::byte*& memory = instances_[buffer][static_cast<std::size_t>(instance)];
  if (block.allocator) {
    block.allocator->deallocate(memory);
  } else {
    block.places.give_back(memory - block.memory.get(), description.bytes + (zoned() ? kZoneBytes : 0));
  }
  memory = nullptr;
  return life;
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
