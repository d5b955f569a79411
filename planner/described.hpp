#pragma once

#include <memory>
#include <type_traits>
#include <utility>

namespace zeroplan {

// Has the pointer point at a copy of its own, which is returned to be changed at once: before the pointer is copied. Requires
// a description.
template <class T>
T& edit(std::shared_ptr<const T>& description) {
  auto own = std::make_shared<T>(*description);
  T& result = *own;
  description = std::move(own);
  return result;
}

// A description that is read once and held by pointer: a copy is the same description, and costs no more than a pointer.
// Whoever wants another one changes what edit() returns, and leaves that of the others as it is.
template <class T>
class Described {
 public:
  Described() : Described(lasting(none())) {}
  Described(T value)  // NOLINT(google-explicit-constructor): a description is as good as a pointer to it
      : value_(std::make_shared<const T>(std::move(value))) {}

  // Of one that lasts as long as the process.
  static Described lasting(const T& value) {
    return Described(std::shared_ptr<const T>(std::shared_ptr<void>(), &value));
  }

  const T& operator*() const { return *value_; }
  const T* operator->() const { return value_.get(); }
  operator const T&() const { return *value_; }  // NOLINT(google-explicit-constructor): see above

  T& edit() { return zeroplan::edit(value_); }

 private:
  explicit Described(std::shared_ptr<const T> value) : value_(std::move(value)) {}
  static const T& none() {
    static const T value{};
    return value;
  }

  std::shared_ptr<const T> value_;
};

}  // namespace zeroplan
