#include "runtime/memory.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <stdexcept>

#include "runtime/queue.hpp"

// NOLINTBEGIN(performance-no-int-to-ptr): what a program takes for pointers are numbers here
namespace zeroplan::emulation {

namespace {

constexpr std::size_t kPage = 4096;
// Addresses, not memory; the thread sanitizer leaves fewer of them.
#if defined(__SANITIZE_THREAD__)
constexpr std::size_t kReserved = std::size_t{1} << 38;
#else
constexpr std::size_t kReserved = std::size_t{1} << 40;
#endif
// Larger blocks are for tests of 64-bit indices, which touch few pages: they are zeros, as the system gives them.
constexpr std::size_t kLargestFilled = std::size_t{1} << 30;
constexpr off_t kFilling = off_t{16} << 20;

std::size_t rounded(std::size_t bytes, std::size_t unit) { return (bytes + unit - 1) / unit * unit; }

// Addresses of the program, which stay unreadable, and those of the memory, which is mapped piece by piece.
struct Reserved {
  std::uintptr_t program = reserve();
  std::uintptr_t memory = reserve();

 private:
  static std::uintptr_t reserve() {
    void* range = mmap(nullptr, kReserved, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (range == MAP_FAILED) throw std::runtime_error("the emulation found no addresses for device memory");
    return reinterpret_cast<std::uintptr_t>(range);
  }
};

const Reserved& reserved() {
  static const Reserved ranges;
  return ranges;
}

// A file of kFilling bytes 0xff, of which each block has copies of its own once it writes there: so a block that is hardly
// used costs hardly anything. Closed with the process.
int filling() {
  static const int file = [] {
    const int made = memfd_create("filling", MFD_CLOEXEC);
    void* pages = made < 0 || ftruncate(made, kFilling) != 0
                      ? MAP_FAILED
                      : mmap(nullptr, kFilling, PROT_READ | PROT_WRITE, MAP_SHARED, made, 0);
    if (pages == MAP_FAILED) throw std::runtime_error("the emulation found no memory to fill others with");
    std::memset(pages, 0xff, kFilling);
    (void)munmap(pages, kFilling);
    return made;
  }();
  return file;
}

// Makes pages readable, and 0xff where they are not too many; false where there are none.
bool open_pages(std::uintptr_t at, std::size_t bytes) {
  const bool fills = bytes <= kLargestFilled;
  const int flags = MAP_PRIVATE | MAP_NORESERVE | MAP_FIXED | (fills ? 0 : MAP_ANONYMOUS);
  const std::size_t step = fills ? std::size_t{kFilling} : bytes;
  for (std::size_t done = 0; done < bytes; done += step) {
    if (mmap(reinterpret_cast<void*>(at + done), std::min(step, bytes - done), PROT_READ | PROT_WRITE, flags,
             fills ? filling() : -1, 0) == MAP_FAILED)
      return false;
  }
  return true;
}

void close_pages(std::uintptr_t at, std::size_t bytes) {
  (void)mmap(reinterpret_cast<void*>(at), bytes, PROT_NONE,
             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
}

// Where the pages of an allocation are.
std::uintptr_t pages_of(std::uintptr_t begin, bool pinned) {
  return pinned ? begin : begin - reserved().program + reserved().memory;
}

std::size_t mapped_bytes(const Allocation& allocation) {
  return rounded(std::max<std::size_t>(1, allocation.bytes), allocation.pinned ? kPage : kGranularity);
}

}  // namespace

std::ptrdiff_t host_distance(const void* device_pointer) {
  const auto at = reinterpret_cast<std::uintptr_t>(device_pointer);
  const Reserved& ranges = reserved();
  if (at < ranges.program || at >= ranges.program + kReserved) return 0;
  return static_cast<std::ptrdiff_t>(ranges.memory - ranges.program);
}

Memory::Memory() : next_(rounded(reserved().program, kGranularity) + kGranularity) {}
Memory::~Memory() { release_all(); }

void* Memory::allocate(std::size_t bytes, int device) {
  const Allocation allocation{bytes, device, false};
  const std::size_t mapped = mapped_bytes(allocation);
  if (next_ + mapped + 2 * kGranularity > reserved().program + kReserved) return nullptr;
  if (!open_pages(pages_of(next_, false), mapped)) return nullptr;
  void* pointer = reinterpret_cast<void*>(next_);
  allocations_.emplace(next_, allocation);
  next_ += mapped + kGranularity;  // a granule that nobody has
  return pointer;
}

void* Memory::allocate_pinned(std::size_t bytes, int device) {
  const Allocation allocation{bytes, device, true};
  const std::size_t mapped = mapped_bytes(allocation);
  void* range =
      mmap(nullptr, mapped + 2 * kPage, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (range == MAP_FAILED) return nullptr;
  const std::uintptr_t begin = reinterpret_cast<std::uintptr_t>(range) + kPage;
  if (!open_pages(begin, mapped)) return nullptr;
  allocations_.emplace(begin, allocation);
  return reinterpret_cast<void*>(begin);
}

bool Memory::release(void* pointer, bool pinned) {
  const auto found = allocations_.find(reinterpret_cast<std::uintptr_t>(pointer));
  if (found == allocations_.end() || found->second.pinned != pinned) return false;
  const std::size_t mapped = mapped_bytes(found->second);
  if (pinned) {
    (void)munmap(reinterpret_cast<void*>(found->first - kPage), mapped + 2 * kPage);
  } else {
    close_pages(pages_of(found->first, false), mapped);
  }
  allocations_.erase(found);
  return true;
}

void Memory::release_all() {
  while (!allocations_.empty()) {
    const auto& [begin, allocation] = *allocations_.begin();
    (void)release(reinterpret_cast<void*>(begin), allocation.pinned);
  }
}

std::optional<Memory::Found> Memory::find(const void* pointer) const {
  const auto at = reinterpret_cast<std::uintptr_t>(pointer);
  auto next = allocations_.upper_bound(at);
  if (next == allocations_.begin()) return std::nullopt;
  --next;
  if (at >= next->first + std::max<std::size_t>(1, next->second.bytes)) return std::nullopt;
  return Found{next->first, next->second};
}

bool Memory::holds(const void* begin, std::size_t bytes) const {
  const std::optional<Found> found = find(begin);
  return found && reinterpret_cast<std::uintptr_t>(begin) + bytes <= found->begin + found->allocation.bytes;
}

std::size_t Memory::used(int device) const {
  std::size_t bytes = 0;
  for (const auto& [begin, allocation] : allocations_) {
    if (!allocation.pinned && allocation.device == device) bytes += mapped_bytes(allocation);
  }
  return bytes;
}

}  // namespace zeroplan::emulation
// NOLINTEND(performance-no-int-to-ptr)
