#include "cli/run/run_job.h"

#include <stdio_ext.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <system_error>
#include <thread>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "cli/run/folder_lock.h"
#include "cli/run/listen_address.h"
#include "cli/run/local_executors.h"
#include "cli/run/plan_drawing.h"
#include "cli/run/progress.h"
#include "cli/run/resume_command.h"
#include "cli/run/run_folder.h"
#include "cli/run/run_log_writer.h"
#include "cli/run/run_outcome.h"
#include "cli/run/run_summary.h"
#include "cli/run/summary_text.h"
#include "lib/base/exit_code.h"
#include "lib/base/object_uri.h"
#include "lib/base/source_file.h"
#include "lib/base/status_macros.h"
#include "lib/daemon/monitoring_server.h"
#include "lib/job/parse.h"
#include "lib/report/number_format.h"
#include "lib/report/report.h"
#include "lib/security/renewal.h"
#include "services/checkpoint_directory.h"
#include "services/checkpoint_folders.h"

namespace fusionllm::cli {
namespace {

constexpr char kAnotherCheckpointFolder[] = "name another folder";
constexpr int64_t kInlineGraphBytesMax = 1 << 19;  // as the schema of spec.model.graph.inline has it

// Where lines of the run go: the user's eyes or programs, and the files of the folder.
class Output : public SessionObserver {
 public:
  Output(const RunJobOptions& options, const RunFolder& folder, bool had_steps, std::string token, std::string report_path)
      : options_(options),
        token_(std::move(token)),
        report_path_(std::move(report_path)),
        lines_(folder / "events.jsonl", folder / "trace.jsonl", {.replace = options.fresh, .hold_back = had_steps}),
        progress_(stderr, options.format == OutputFormat::kText ? StyleOf(stderr) : ProgressStyle{}, options.job.spec.training.steps,
                  options.line_prefix, {.every = options.log_every}) {
    if (options.format == OutputFormat::kText) progress_.Phase("starting the processes");
  }

  bool OnLine(LineType type, absl::string_view line, const report::Run& run) override {
    if (type == LineType::kTrace) {
      lines_.Trace(line);
      TellLostLines();
      return true;
    }
    if (type == LineType::kStep) {
      steps_made_ = true;
      lines_.Begin();
    }
    error_printed_ = error_printed_ || type == LineType::kError;
    if (type == LineType::kSummary) {  // the last line, whatever there is to tell of the end: see End
      summary_ = std::string(line);
      if (options_.format == OutputFormat::kText) progress_.Show(type, run);
      return true;
    }
    const std::string text(line);
    lines_.Event(text);
    TellLostLines();
    if (options_.format == OutputFormat::kText) {
      progress_.Show(type, run);
      return true;
    }
    return Print(text);
  }

  // What the broker could not tell, and the summary. `already_done`: as in CompleteSummary.
  void End(const SessionResult& result, const report::Run& run, const EarlierRecord* already_done) {
    // A run that was resumed with nothing left to do, or not for long, is part of its history.
    const bool refused = result.exit_code != kExitDone && result.exit_code != kExitInterrupted;
    if (!options_.fresh && !refused) lines_.Begin();
    if (!result.error.empty() && !error_printed_) {
      Tell(nlohmann::json{{"type", "error"}, {"code", "INTERNAL"}, {"reason", ""}, {"message", result.error}}.dump());
    }
    if (!summary_.empty()) Tell(CompleteSummary(summary_, run, report_path_, already_done));
  }

  void OnNotice(absl::string_view sentence) override { OnLog(base::LogLevel::kWarning, sentence); }

  void OnLog(base::LogLevel level, absl::string_view sentence) override {
    if (base::IsLogged(level)) progress_.Sentence(sentence, /*warning=*/level >= base::LogLevel::kWarning);
  }

  void OnListening(absl::string_view address) override {
    if (!options_.listen) {
      if (options_.format == OutputFormat::kText) {
        progress_.Phase(options_.profiles ? "planning" : "measuring devices and links, then planning");
      }
      return;
    }
    progress_.Sentence(absl::StrCat("waiting for executors; on each of the other machines run\n  fusionctl join ", AddressToDial(address),
                                    " --token ", token_));
  }

  bool steps_made() const { return steps_made_; }
  absl::Status LinesStatus() const { return lines_.Status(); }
  // Why lines of the run could not be printed; empty: they were, or the reader went away.
  const std::string& stdout_error() const { return stdout_error_; }

 private:
  // Once, at once: who could make room wants to know before the run has ended.
  void TellLostLines() {
    if (lines_lost_) return;
    const absl::Status status = lines_.Status();
    lines_lost_ = !status.ok();
    if (lines_lost_) OnNotice(absl::StrCat(status.message(), "; the run goes on, its record has a gap from here on"));
  }

  void Tell(const std::string& text) {
    lines_.Event(text);
    if (options_.format == OutputFormat::kJson) (void)Print(text);
  }

  bool Print(const std::string& text) {
    const std::string whole = (options_.tag.empty() ? text : WithField(text, "run", options_.tag)) + "\n";
    if (std::fwrite(whole.data(), 1, whole.size(), stdout) == whole.size() && std::fflush(stdout) == 0) return true;
    const int error = errno;
    if (error == EPIPE) return false;  // a reader that went away knows
    if (stdout_error_.empty()) stdout_error_ = absl::StrCat("cannot write to stdout: ", std::strerror(error));
    // What is reported here need not be reported again at the end of the program, by then without the reason.
    __fpurge(stdout);
    std::clearerr(stdout);
    return false;
  }

  const RunJobOptions& options_;
  const std::string token_, report_path_;
  RunLogWriter lines_;
  Progress progress_;
  std::string summary_, stdout_error_;
  bool steps_made_ = false, error_printed_ = false, lines_lost_ = false;
};

// Devices with a profile exist on paper only.
absl::Status CheckEmulated(const job::Topology& topology) {
  for (const job::Site& site : topology.spec.sites) {
    for (const job::Device& device : site.devices) {
      if (!device.profile.has_value()) continue;
      return absl::InvalidArgumentError(
          absl::StrCat("NotEmulated: device ", device.name, " of topology ", topology.metadata.name, " has the profile ", *device.profile,
                       ", which this machine cannot emulate: see what it would do with `fusionctl plan`, or remove `profile` to run"));
    }
  }
  return absl::OkStatus();
}

// Of runs that begin in the same second the later one takes the next name.
absl::StatusOr<RunFolder> OpenFolder(const RunJobOptions& options) {
  if (!options.output.empty()) return RunFolder::Open(options.output);
  constexpr int kMaxAttempts = 100;
  absl::StatusOr<RunFolder> folder = RunFolder::Open(DefaultRunFolder(options.job.metadata.name));
  for (int i = 1; i < kMaxAttempts && absl::IsFailedPrecondition(folder.status()); ++i) {
    folder = RunFolder::Open(DefaultRunFolder(options.job.metadata.name));
  }
  return folder;
}

absl::Status CheckAddress(absl::string_view option, const std::string& address) {
  const absl::Status status = CheckListen(address);
  return status.ok() ? status : absl::InvalidArgumentError(absl::StrCat(option, ": ", status.message()));
}

// What machines that join need of a job: they have nothing but its document.
absl::Status PrepareForJoining(RunJobOptions& options) {
  if (options.topology) {
    return absl::InvalidArgumentError(
        "--listen and --topology cannot be combined: a topology emulates links on one machine, machines that join have real ones");
  }
  FUSIONLLM_RETURN_IF_ERROR(CheckAddress("--listen", *options.listen));
  job::Spec& spec = options.job.spec;
  // The planner would refuse it, too, but not before the others have joined and were measured.
  if (spec.strategy.replicas > 1) {
    return absl::InvalidArgumentError(absl::StrCat(
        "spec.strategy.replicas: ", spec.strategy.replicas,
        " cannot be combined with --listen: each of several pipelines reads training data where it begins, and machines that join have "
        "none. Train in one pipeline over all machines by --set spec.strategy.replicas=1"));
  }
  if (spec.model.graph.has_value() && spec.model.graph->file.has_value()) {
    const std::filesystem::path file = std::filesystem::path(options.base) / *spec.model.graph->file;
    absl::StatusOr<std::string> text = base::AsBadInput(base::ReadSmallFile(file.string(), kInlineGraphBytesMax));
    if (!text.ok()) return absl::Status(text.status().code(), absl::StrCat("spec.model.graph.file: ", text.status().message()));
    spec.model.graph = job::GraphSource{.inline_text = *std::move(text)};
  }
  return absl::OkStatus();
}

// A folder of checkpoints that is not inside the run's own may be named by other runs too: they would restore and remove each other's.
absl::StatusOr<std::optional<FolderLock>> HoldCheckpoints(const job::FusionJob& job, const RunFolder& folder) {
  // Those of an object store begin in the run's own folder.
  if (!job.spec.checkpoint.has_value() || base::IsUri(job.spec.checkpoint->path)) return std::nullopt;
  const std::filesystem::path path = (std::filesystem::path(folder.path()) / job.spec.checkpoint->path).lexically_normal();
  if (path == std::filesystem::path(folder.path())) return std::nullopt;  // held already
  absl::StatusOr<FolderLock> lock = FolderLock::Acquire(path, kAnotherCheckpointFolder);
  if (!lock.ok()) return absl::Status(lock.status().code(), absl::StrCat(services::kCheckpointPathField, ": ", lock.status().message()));
  return *std::move(lock);
}

// What is to be said of a folder that another job's run has left; empty: nothing.
std::string OtherJobsRecord(const RunFolder::Snapshot& earlier, const RunFolder& folder, const job::FusionJob& job) {
  const auto text = earlier.files.find("job.yaml");
  if (text == earlier.files.end() || !text->second.has_value()) return "";
  const absl::StatusOr<job::FusionJob> other = job::ParseFusionJob(*text->second, folder / "job.yaml");
  if (!other.ok() || other->metadata.name == job.metadata.name) return "";
  return absl::StrCat(folder.path(), " has a run of the job ", other->metadata.name,
                      ": its job.yaml and report give way to those of this run (another folder: --output)");
}

// A broker that was killed leaves it.
void RemoveSharedMark(const job::FusionJob& job, const std::string& folder) {
  const std::string where = job.spec.checkpoint ? services::CheckpointDirectory(job.spec.checkpoint->path, folder) : folder;
  unlink(absl::StrCat(where, "/", services::kSharedMark).c_str());
}

// At the start, where the job itself does not say.
void TellWhatIsKept(const RunJobOptions& options, const std::string& folder) {
  if (options.kept_by_default) {
    const std::string where = services::CheckpointDirectory(options.job.spec.checkpoint->path, folder);
    absl::FPrintF(stderr, "the job has no spec.checkpoint: its last step is kept in %s (--no-checkpoint keeps nothing)\n",
                  RelativeToWorkingFolder(where));
  } else if (!options.job.spec.checkpoint && !options.command.empty()) {
    absl::FPrintF(stderr, "nothing of the model will be kept: the run has no checkpoints\n");
  }
}

}  // namespace

absl::StatusOr<std::string> ProgramFolder() {
  std::error_code error;
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", error);
  if (error) return absl::InternalError(absl::StrCat("cannot tell where this program is: ", error.message()));
  return program.parent_path().string();
}

std::vector<std::pair<std::string, std::string>> DescribeMachine() {
  std::vector<std::pair<std::string, std::string>> facts;
  std::ifstream cpuinfo("/proc/cpuinfo");
  for (std::string line; std::getline(cpuinfo, line);) {
    if (!absl::StartsWith(line, "model name")) continue;
    const std::vector<std::string> parts = absl::StrSplit(line, absl::MaxSplits(": ", 1));
    if (parts.size() == 2) facts.push_back({"processor", parts[1]});
    break;
  }
  facts.push_back({"cores", absl::StrCat(std::thread::hardware_concurrency())});
  const double memory = static_cast<double>(sysconf(_SC_PHYS_PAGES)) * static_cast<double>(sysconf(_SC_PAGESIZE));
  facts.push_back({"memory", report::MemoryBytes(memory)});
  utsname system = {};
  if (uname(&system) == 0) facts.push_back({"system", absl::StrCat(system.sysname, " ", system.release, " ", system.machine)});
  return facts;
}

absl::Status CheckRunJob(const RunJobOptions& options) {
  if (options.topology) FUSIONLLM_RETURN_IF_ERROR(CheckEmulated(*options.topology));
  if (options.topology && !options.devices.empty()) {
    return absl::InvalidArgumentError("--device and --topology cannot be combined: a topology says which devices there are");
  }
  if (!options.metrics_address || *options.metrics_address == daemon::kNoMonitoring) return absl::OkStatus();
  // The broker's own rule: else it would end for it after the others have started.
  if (const absl::Status wrong = daemon::CheckMonitoringAddress(*options.metrics_address); !wrong.ok()) {
    return absl::InvalidArgumentError(absl::StrCat("--metrics-address: ", wrong.message()));
  }
  return CheckAddress("--metrics-address", *options.metrics_address);
}

absl::Status CheckRunFolders(const RunJobOptions& options) {
  const std::string output = options.output.empty() ? DefaultRunFolder(options.job.metadata.name) : options.output;
  // Another run may take that name until it is opened, which is no reason to refuse this one.
  FUSIONLLM_RETURN_IF_ERROR(RunFolder::Check(options.output.empty() ? std::filesystem::path(output).parent_path().string() : output));
  const std::string absolute = std::filesystem::absolute(output).string();
  for (const services::CheckpointFolder& folder : services::CheckpointFolders(options.job, absolute)) {
    const bool of_copies = folder.field != services::kCheckpointPathField;  // no process holds it
    const absl::Status status =
        of_copies ? FolderLock::CheckCanWrite(folder.path) : FolderLock::Check(folder.path, kAnotherCheckpointFolder);
    if (!status.ok()) return absl::Status(status.code(), absl::StrCat(folder.field, ": ", status.message()));
  }
  return services::CheckCheckpointFolders(options.job, absolute);
}

absl::StatusOr<RunJobResult> RunJob(const RunJobOptions& given, SignalWatch& signals) {
  RunJobOptions options = given;
  const absl::Time begin = absl::Now();
  FUSIONLLM_RETURN_IF_ERROR(CheckRunJob(options));
  FUSIONLLM_RETURN_IF_ERROR(CheckRunFolders(options));
  if (options.listen) FUSIONLLM_RETURN_IF_ERROR(PrepareForJoining(options));
  const auto cores = std::max<int64_t>(1, std::thread::hardware_concurrency());
  ShareCores(options.devices, cores, options.job.spec.executors);
  if (const std::string crowd = OversubscriptionWarning(options.devices, cores, options.job.spec.executors); !crowd.empty()) {
    absl::FPrintF(stderr, "fusionctl: %swarning: %s\n", options.line_prefix, crowd);
  }
  const std::string& name = options.job.metadata.name;
  FUSIONLLM_ASSIGN_OR_RETURN(const RunFolder folder, OpenFolder(options));
  FUSIONLLM_ASSIGN_OR_RETURN(const std::optional<FolderLock> checkpoints, HoldCheckpoints(options.job, folder));
  FUSIONLLM_RETURN_IF_ERROR(base::AsBadInput(RunLogWriter::CheckWritable(folder / "events.jsonl", folder / "trace.jsonl")));
  const RunFolder::Snapshot earlier = folder.TakeSnapshot();
  if (const std::string other = OtherJobsRecord(earlier, folder, options.job); !other.empty()) {
    absl::FPrintF(stderr, "fusionctl: %swarning: %s\n", options.line_prefix, other);
  }
  if (options.format == OutputFormat::kText) TellWhatIsKept(options, folder.path());
  absl::Cleanup put_back = [&] { folder.Restore(earlier); };
  FUSIONLLM_RETURN_IF_ERROR(folder.WriteJob(options.job, options.topology));
  std::vector<LocalExecutor> executors = LocalExecutorsOf(options.topology, options.devices);
  for (LocalExecutor& executor : executors) executor.allow_nondeterminism = options.allow_nondeterminism;
  std::vector<std::string> devices;
  for (const LocalExecutor& executor : executors) devices.push_back(executor.name);
  FUSIONLLM_ASSIGN_OR_RETURN(std::string token, folder.WriteSecurity(name, devices, HostsOf(options.listen)));

  std::string bin = options.bin_folder;
  if (bin.empty()) {
    FUSIONLLM_ASSIGN_OR_RETURN(bin, ProgramFolder());
  }
  SessionOptions session;
  session.scheduler = {bin + "/fusion-scheduler"};
  session.broker = {bin + "/fusion-broker"};
  session.executor = {bin + "/fusion-executor"};
  session.output = folder.path();
  session.base = options.base.empty() ? folder.path() : options.base;
  session.topology = options.topology.has_value();
  session.executors = executors;
  session.listen = options.listen;
  // Those of this machine and at least one other, unless the job wants more.
  if (options.listen) session.min_executors = std::max(static_cast<int64_t>(executors.size()) + 1, options.job.spec.executors.min);
  session.profiles = options.profiles;
  session.join_timeout_seconds = options.join_timeout_seconds;
  session.fresh = options.fresh;
  session.stop_after_s = options.stop_after_s;
  session.log_level = options.log_level;
  session.metrics_address = options.metrics_address;
  session.wanted_cores = WantedCores(options.topology, options.job.spec.executors.threads,
                                     options.devices.empty() ? std::vector<std::string>{"auto"} : options.devices);

  RunJobResult result;
  result.folder = folder.path();
  result.report_path = folder / "report.html";
  report::Run& run = result.run;
  DescribeJob(options.job, run);
  run.title = options.title.empty() ? name : options.title;
  run.started = absl::FormatTime("%Y-%m-%dT%H:%M:%SZ", begin, absl::UTCTimeZone());
  if (options.topology) {
    for (const job::Site& site : options.topology->spec.sites) {
      for (const job::Device& device : site.devices) run.site_of[device.name] = site.name;
    }
  }
  // The report of a resumed run shows the whole training.
  const EarlierRecord record = ReadEarlierRecord(folder / "events.jsonl");
  const bool had_steps = !record.run.steps.empty();
  if (!options.fresh) {
    run.steps = record.run.steps;
    run.evaluations = record.run.evaluations;
    run.checkpoints = record.run.checkpoints;
    run.earlier_steps = run.steps.size();
  }

  SessionResult ended;
  bool steps_made = false, already_done = false;
  {
    Output output(options, folder, had_steps, std::move(token), result.report_path);
    const security::RenewalThread renewal(
        "a certificate of this run", [&folder] { return folder.RenewCertificates(); }, options.renewal_interval);
    absl::StatusOr<SessionResult> session_result = RunSession(session, signals, output, run);
    RemoveSharedMark(options.job, folder.path());
    if (session_result.ok()) {
      ended = *std::move(session_result);
    } else {
      ended = {kExitFailed, false, std::string(session_result.status().message())};
    }
    steps_made = output.steps_made();
    run.elapsed_s = absl::ToDoubleSeconds(absl::Now() - begin);
    already_done = ended.exit_code == kExitDone && !ended.time_limit_reached && !steps_made && run.total_steps > 0;
    if (already_done && !MergeEarlierRecord(record, run)) run.summary.reset();  // zeros and nulls
    output.End(ended, run, already_done ? &record : nullptr);
    const bool well = ended.exit_code == kExitDone || ended.exit_code == kExitInterrupted;
    if (const absl::Status lines = output.LinesStatus(); well && !lines.ok()) ended = {kExitFailed, false, std::string(lines.message())};
    if (well && !output.stdout_error().empty()) ended = {kExitFailed, false, output.stdout_error()};
  }
  ended.error = options.places.Located(ended.error);  // the processes know the job without its file
  absl::StrAppend(&ended.error, options.listen ? JoinAdvice(ended.reason, options.job.spec, options.join_timeout_seconds)
                                               : AdviceSuffix(ended.reason, options.job.spec, options.topology, options.devices));
  result.exit_code = ended.exit_code;
  result.time_limit_reached = ended.time_limit_reached;
  result.error = ended.error;
  const std::string outcome = OutcomeOf(options.job, ended, run, steps_made, already_done);
  run.outcome = ended.error.empty() ? outcome : absl::StrCat(outcome, ": ", ended.error);
  if (run.plan) run.graph_svg = DrawPlanGraph(options.job, *run.plan);
  if (!ended.error.empty()) absl::FPrintF(stderr, "fusionctl: %s%s\n", options.line_prefix, run.outcome);
  // A start that found all steps made leaves the record of the run as it trained.
  const bool came_to_something = !already_done && (ended.exit_code == kExitDone || ended.exit_code == kExitInterrupted);
  if (!had_steps || steps_made || came_to_something) std::move(put_back).Cancel();
  bool reported = came_to_something || already_done;
  // The report of a run that made steps is worth more than that of a start which made none.
  std::error_code ignored;
  if (steps_made || !had_steps || !std::filesystem::exists(result.report_path, ignored)) {
    const absl::Status written = folder.WriteFile("report.html", report::ToHtml({run.title, "", DescribeMachine(), {run}}));
    if (!written.ok()) absl::FPrintF(stderr, "fusionctl: %s\n", written.message());
    if (!written.ok() && result.exit_code == kExitDone) result.exit_code = kExitFailed;
    reported = written.ok();
  }
  const std::string left = NextSteps(options.job, options.command, result.folder, result.exit_code, !run.steps.empty(), steps_made);
  if (options.format == OutputFormat::kText && options.print_summary) {
    absl::PrintF("%s\n%s%s", SummaryText(run, outcome), reported ? absl::StrCat("report: ", result.report_path, "\n") : "", left);
    std::fflush(stdout);
  } else if (options.print_summary && result.exit_code != kExitDone) {
    absl::FPrintF(stderr, "%s", left);
  }
  return result;
}

}  // namespace fusionllm::cli
