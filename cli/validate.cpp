#include <fmt/format.h>

#include <memory>

#include "cli/command.hpp"
#include "cli/environment.hpp"
#include "cli/live_run.hpp"
#include "cli/live_settings.hpp"
#include "cli/one_rank.hpp"
#include "cli/options.hpp"
#include "cli/output_file.hpp"
#include "cli/ranks.hpp"
#include "cli/run_identity.hpp"
#include "cli/signals.hpp"
#include "cli/version.hpp"
#include "executor/error.hpp"
#include "executor/modules.hpp"
#include "reports/validation_stream.hpp"

namespace zeroplan::cli {

namespace {

using executor::Launch;
using reports::RunOutcome;
using reports::ValidationAnswer;

// A plan that leaves the number of ranks open has as many as were started.
describe::PlanOptions with_ranks(describe::PlanOptions options, const Launch& launch) {
  const bool open = !options.gpus && !options.nodes && !options.dp;
  if (open && launch.kind != Launch::Kind::threads) options.gpus = launch.ranks;
  return options;
}

void require_same_ranks(const describe::Plan& plan, const Launch& launch) {
  if (launch.kind == Launch::Kind::threads || plan.devices() == launch.ranks) return;
  throw ConfigurationError(Problem{
      "--gpus", 0, "",
      fmt::format("the plan has {} ranks (dp {} x tp {}), expected the {} processes that were started",
                  plan.devices(), plan.data_parallel, plan.tensor_parallel, launch.ranks)});
}

std::optional<std::string> refusal(const LiveRun& run, const LiveSettings& settings,
                                   const describe::Cluster& machine) {
  if (std::optional<std::string> reason = cannot_run(run.model, run.plan, run.prediction.program())) {
    return reason;
  }
  if (std::optional<std::string> reason = cannot_stand_for(settings.device, machine)) return reason;
  if (settings.force) return std::nullopt;
  const bool on_gpus = settings.device.kind == RunDevice::Kind::cuda;
  if (run.prediction.does_not_fit()) {
    return fmt::format("{}; --force runs it all the same", run.prediction.verdict_reason);
  }
  if (std::optional<std::string> reason = too_large_here(run.prediction, run.plan, run.launch, on_gpus)) {
    return fmt::format("{}; --force runs it all the same", *reason);
  }
  if (run.launch.kind == Launch::Kind::threads) {
    if (std::optional<std::string> reason =
            cannot_share(settings.device, run.plan.devices(), run.prediction.memory().peak, machine)) {
      return fmt::format("{}; --force runs it all the same", *reason);
    }
  }
  if (settings.against_one_rank > 0) return cannot_repeat(run, machine);
  return std::nullopt;
}

// JSON lines are written while the run goes on.
std::unique_ptr<RecordStream> stream_of(const Request& request) {
  if (request.format != reports::Format::jsonl || (request.quiet && request.out.empty())) return nullptr;
  return std::make_unique<RecordStream>(request.out, *request.answers);
}

std::string interruption(const program::Measurement& measurement, const executor::RunSettings& settings) {
  return fmt::format("{} after {} of {} steps", signal_name(measurement.interrupted_by),
                     measurement.steps.taken(), settings.warm_up + settings.steps);
}

int exit_code_of(RunOutcome outcome) {
  switch (outcome) {
    case RunOutcome::predicted:
    case RunOutcome::agrees:
      return kYes;
    case RunOutcome::differs:
      return kNo;
    case RunOutcome::not_possible:
      return kNotPossible;
    case RunOutcome::interrupted:
    case RunOutcome::failed:
      break;
  }
  return kRunFailed;
}

}  // namespace

Answer validate(const Request& request) {
  const LiveSettings settings = read_live_settings(request);
  const Launch launch = executor::detect_launch(executor::environment_variable, executor::has_mpi_module());
  const std::string argument = model_argument(request);
  const std::string hardware = request.hardware.empty() ? "cpu" : request.hardware;
  const describe::Model model = describe::resolve_model(argument);
  const describe::ResolvedPlan resolved =
      describe::resolve_plan(with_ranks(request.options, launch), model, hardware);
  require_same_ranks(resolved.plan, launch);
  require_used(request, resolved.plan);
  const predict::Prediction prediction = predict::predict(model, resolved.plan, resolved.cluster);
  const executor::RunPlan planned = run_plan(model, resolved.plan, prediction);
  const auto data = executor::open_data(settings.run, planned);
  const auto weights = executor::open_weights(settings.run, planned);
  const reports::FitAnswer fit{version(), argument, hardware, model, resolved, prediction, {}};
  const reports::RunEnvironment environment = run_environment(request.words);

  ValidationAnswer answer{fit, environment};
  const bool speaks = launch.rank == 0;  // of several processes one does
  const executor::RunIdentity identity = run_identity(request, launch, model, resolved.plan);
  const std::unique_ptr<RecordStream> record = speaks ? stream_of(request) : nullptr;
  const LiveRun run{model,        resolved.plan, prediction,
                    settings.run, launch,        identity,
                    data,         weights,       speaks ? request.progress : nullptr,
                    record.get()};
  const auto finish = [&](RunOutcome outcome, const std::string& reason) {
    if (!speaks && reason.empty()) return Answer{{}, exit_code_of(outcome), true};
    if (!speaks) return end_of_rank(request, launch, reason, exit_code_of(outcome));
    answer.outcome = outcome;
    answer.reason = reason;
    if (record != nullptr) {
      record->write(reports::end_line(answer));
      record->close();
      return Answer{{}, exit_code_of(outcome), true};
    }
    return Answer{reports::validation_report(answer), exit_code_of(outcome)};
  };
  if (record != nullptr) record->write(reports::start_line(answer));
  if (const std::optional<std::string> reason = refusal(run, settings, resolved.cluster)) {
    return finish(RunOutcome::not_possible, *reason);
  }
  if (run.progress != nullptr)
    *run.progress << reports::prediction_line(prediction, resolved.plan) << std::endl;
  if (speaks && record == nullptr && !request.out.empty()) {
    write_whole_file(request.out, reports::write(reports::validation_report(answer), request.format));
  }
  try {
    program::Measurement measurement = run_live(run);
    answer.measurement = &measurement;
    // Also where a signal ended the run: launchers end every rank when one ends with another code, and rank 0 may
    // still be writing its record.
    if (!speaks) return finish(RunOutcome::agrees, "");
    if (measurement.interrupted_by != 0) {
      Answer interrupted = finish(RunOutcome::interrupted, interruption(measurement, settings.run));
      interrupted.exit_code = kInterrupted + measurement.interrupted_by;
      return interrupted;
    }
    if (settings.against_one_rank > 0) {
      measurement.one_rank = repeat_on_one_rank(run, resolved.cluster, settings.against_one_rank);
    }
    return finish(reports::compare(prediction, measurement).ok() ? RunOutcome::agrees : RunOutcome::differs,
                  "");
  } catch (const ConfigurationError& error) {
    if (speaks) throw;
    return end_of_rank(request, launch, error.what(), kBadInput);
  } catch (const executor::NotPossible& error) {
    return finish(RunOutcome::not_possible, error.what());
  } catch (const executor::DeviceError& error) {
    return finish(RunOutcome::failed, error.what());
  } catch (const executor::CommunicationError& error) {
    return finish(RunOutcome::failed, error.what());
  }
}

}  // namespace zeroplan::cli
