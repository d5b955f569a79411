#include "executor/communicator/failure.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <new>
#include <stdexcept>

#include "executor/error.hpp"
#include "planner/error.hpp"

namespace zeroplan::executor {

Failure failure_of(const std::exception_ptr& exception) {
  using Kind = Failure::Kind;
  try {
    std::rethrow_exception(exception);
  } catch (const ConfigurationError& error) {
    return {.kind = Kind::configuration, .text = error.what()};
  } catch (const NotPossible& error) {
    return {.kind = Kind::not_possible, .text = error.what()};
  } catch (const CommunicationError& error) {
    return {.kind = Kind::communication, .text = error.what()};
  } catch (const DeviceError& error) {
    return {.kind = Kind::device, .text = error.what()};
  } catch (const std::bad_alloc&) {
    return {.kind = Kind::device, .text = "this process has no more memory beside the buffers of its ranks"};
  } catch (const std::logic_error& error) {
    return {.kind = Kind::logic, .text = error.what()};
  } catch (const std::exception& error) {
    return {.kind = Kind::other, .text = error.what()};
  } catch (...) {
    return {.kind = Kind::other, .text = "an exception that is no std::exception"};
  }
}

void throw_failure(const Failure& failure) {
  switch (failure.kind) {
    case Failure::Kind::configuration:
      throw ConfigurationError(Problem{.source = "", .line = 0, .key = "", .message = failure.text});
    case Failure::Kind::not_possible:
      throw NotPossible(failure.text);
    case Failure::Kind::communication:
      throw CommunicationError(failure.text);
    case Failure::Kind::device:
      throw DeviceError(failure.text);
    case Failure::Kind::logic:
      throw std::logic_error(failure.text);
    case Failure::Kind::other:
      break;
  }
  throw std::runtime_error(failure.text);
}

std::string ranks_text(std::vector<std::int64_t> ranks) {
  std::sort(ranks.begin(), ranks.end());
  ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
  return fmt::format("{} {}", ranks.size() == 1 ? "rank" : "ranks", fmt::join(ranks, ", "));
}

}  // namespace zeroplan::executor
