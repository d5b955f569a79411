#pragma once

#include <boost/context/stack_context.hpp>
#include <cstddef>
#include <memory>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#endif

// A fiber's stack, and what the address sanitizer must be told around every switch to and from it: Boost does not tell.
namespace zeroplan::emulation {

class Stack {
 public:
  // Gives out this stack's memory, which the stack keeps.
  class Allocator {
   public:
    explicit Allocator(Stack& stack) : stack_(&stack) {}
    boost::context::stack_context allocate() {
      if (stack_->memory_ == nullptr) stack_->memory_ = std::make_unique_for_overwrite<std::byte[]>(kBytes);
      boost::context::stack_context context;
      context.size = kBytes;
      context.sp = stack_->memory_.get() + kBytes;
      return context;
    }
    void deallocate(boost::context::stack_context&) {}

   private:
    Stack* stack_;
  };

  Allocator allocator() { return Allocator(*this); }

  // The scheduler calls these two around its switch, the fiber the others.
  void enter() {
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_start_switch_fiber(&scheduler_, memory_.get(), kBytes);
#endif
  }
  void left() {
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_finish_switch_fiber(scheduler_, nullptr, nullptr);
#endif
  }
  void entered() {
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_finish_switch_fiber(fiber_, &scheduler_stack_, &scheduler_bytes_);
#endif
  }
  void leave() {
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_start_switch_fiber(&fiber_, scheduler_stack_, scheduler_bytes_);
#endif
  }
  void leave_for_good() {
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_start_switch_fiber(nullptr, scheduler_stack_, scheduler_bytes_);
#endif
  }

 private:
#if defined(__SANITIZE_ADDRESS__)
  static constexpr std::size_t kBytes = std::size_t{256} * 1024;  // frames have zones between their variables
  void* scheduler_ = nullptr;
  void* fiber_ = nullptr;
  const void* scheduler_stack_ = nullptr;
  std::size_t scheduler_bytes_ = 0;
#else
  static constexpr std::size_t kBytes = std::size_t{64} * 1024;
#endif
  std::unique_ptr<std::byte[]> memory_;
};

}  // namespace zeroplan::emulation
