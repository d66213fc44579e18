#include "cli/run/run_session.h"

#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstring>
#include <iterator>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "cli/run/child_process.h"
#include "cli/run/cpu_load_monitor.h"
#include "lib/base/status_macros.h"
#include "lib/base/thread_limit.h"

namespace fusionllm::cli {
namespace {

using Clock = std::chrono::steady_clock;

constexpr absl::string_view kListening = "listening on ";
constexpr absl::string_view kMetrics = "metrics on ";
constexpr absl::string_view kStillStopping =
    "still waiting for the end of the step under way, and for its checkpoint where the job keeps any; interrupt once more to end at once, "
    "without them (checkpoints that were saved stay)";
// With what the broker has reported last.
constexpr char kStillCollecting[] =
    "still waiting for parts of the last checkpoint that lie in other sites (%s); interrupt once more to end at once: they stay there";
// Reasons that the broker gives while it is at that.
constexpr absl::string_view kCollecting[] = {"CollectingShards", "WaitingForSite", "ShardFetched"};
// The steps are over by then.
constexpr absl::string_view kCopying = "CopyingCheckpoints";
constexpr char kStopWhileCopying[] =
    "the run ends when its checkpoints are copied (%s), or cannot be; interrupt once more to end at once: they stay where they are";
// As services/executor/main.cc says it: nothing is wrong with the executor.
constexpr int kExecutorRunFailed = 5;

Clock::time_point After(double seconds) {
  return Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
}

// A scheduler or broker: says where it listens, and is started again in its old place when it is killed.
struct Server {
  std::string name;
  std::optional<ChildProcess> child;
  LineReader reader;
  bool open = false;    // its stdout
  std::string address;  // empty until it said so
  std::string metrics;  // host:port of its metrics; likewise
  Clock::time_point said_by;
  bool said = false;  // this incarnation has
  int restarts = 0;
};

class Session {
 public:
  Session(const SessionOptions& options, SignalWatch& signals, SessionObserver& observer, report::Run& run)
      : options_(options),
        signals_(signals),
        observer_(observer),
        run_(run),
        recorder_(&run),
        load_(options.wanted_cores, options.cpu_usage) {
    scheduler_.name = "fusion-scheduler";
    broker_.name = "fusion-broker";
  }

  absl::StatusOr<SessionResult> Run() {
    absl::StatusOr<SessionResult> result = Watch();
    EndAll();
    return result;
  }

 private:
  std::string LogPath(absl::string_view name) const { return absl::StrCat(options_.output, "/logs/", name, ".log"); }
  std::string Security() const { return options_.output + "/security"; }

  absl::Status StartScheduler() {
    std::vector<std::string> argv = options_.scheduler;
    const std::string listen = scheduler_.address.empty() ? "127.0.0.1:0" : scheduler_.address;
    argv.insert(argv.end(), {"--listen", listen, "--tls", Security()});
    return StartServer(scheduler_, std::move(argv), "scheduler");
  }

  absl::Status StartBroker() {
    std::vector<std::string> argv = options_.broker;
    argv.insert(argv.end(), {"--job", options_.output + "/job.yaml"});
    if (options_.topology) argv.insert(argv.end(), {"--topology", options_.output + "/topology.yaml"});
    const std::string listen = broker_.address.empty() ? options_.listen.value_or("127.0.0.1:0") : broker_.address;
    argv.insert(argv.end(), {"--output", options_.output, "--base", options_.base, "--listen", listen, "--scheduler", scheduler_.address,
                             "--tls", Security()});
    const auto name = [](std::string* out, const LocalExecutor& executor) { out->append(executor.name); };
    const std::string names = absl::StrJoin(options_.executors, ",", name);
    if (!names.empty()) argv.insert(argv.end(), {"--expected-executors", names});
    if (!options_.listen) argv.push_back("--closed");
    if (options_.listen) {
      argv.insert(argv.end(), {"--allow-join", "--min-executors", absl::StrCat(std::max<int64_t>(1, options_.min_executors))});
      if (!names.empty()) argv.insert(argv.end(), {"--data-device", names});
    }
    if (options_.fresh) argv.push_back("--fresh");
    if (options_.join_timeout_seconds) argv.insert(argv.end(), {"--join-timeout-seconds", absl::StrCat(*options_.join_timeout_seconds)});
    if (options_.profiles) argv.insert(argv.end(), {"--profiles", *options_.profiles});
    if (!broker_.address.empty()) {
      argv.push_back("--resume-journal");
      std::vector<std::string> gone;
      for (Executor& executor : executors_) {
        if (executor.child.Poll()) gone.push_back(executor.child.name());
      }
      if (!gone.empty()) argv.insert(argv.end(), {"--lost-executors", absl::StrJoin(gone, ",")});
    }
    return StartServer(broker_, std::move(argv), "broker");
  }

  absl::Status StartServer(Server& server, std::vector<std::string> argv, absl::string_view log_name) {
    if (options_.log_level) argv.insert(argv.end(), {"--log-level", *options_.log_level});
    // One that takes over is watched where the one before it was.
    if (!server.metrics.empty()) {
      argv.insert(argv.end(), {"--metrics-address", server.metrics});
    } else if (&server == &broker_ && options_.metrics_address) {
      argv.insert(argv.end(), {"--metrics-address", *options_.metrics_address});
    }
    const std::string command = absl::StrJoin(argv, " ");
    FUSIONLLM_ASSIGN_OR_RETURN(server.child, ChildProcess::Start({server.name, std::move(argv), LogPath(log_name), /*pipe_stdout=*/true}));
    LogStart(*server.child, command);
    server.reader = {};
    server.open = true;
    server.said = false;
    server.said_by = After(options_.start_limit_s);
    return absl::OkStatus();
  }

  void LogStart(const ChildProcess& child, absl::string_view command) {
    observer_.OnLog(base::LogLevel::kInfo, absl::StrFormat("started %s, process %d, log %s", child.name(), child.pid(), child.log_path()));
    observer_.OnLog(base::LogLevel::kDebug, command);
  }

  absl::Status StartExecutors() {
    for (const LocalExecutor& executor : options_.executors) {
      FUSIONLLM_ASSIGN_OR_RETURN(ChildProcess child, StartExecutor(executor));
      executors_.push_back({executor, std::move(child)});
    }
    return absl::OkStatus();
  }

  absl::StatusOr<ChildProcess> StartExecutor(const LocalExecutor& executor) {
    std::vector<std::string> argv = options_.executor;
    argv.insert(argv.end(), {"--broker", broker_.address, "--name", executor.name, "--tls", Security()});
    if (executor.spare) argv.push_back("--spare");
    if (!executor.device.empty()) argv.insert(argv.end(), {"--device", executor.device});
    if (executor.allow_nondeterminism) argv.push_back("--allow-nondeterminism");
    if (!executor.site.empty()) argv.insert(argv.end(), {"--site", executor.site});
    if (options_.listen) argv.push_back("--relay");
    if (options_.log_level) argv.insert(argv.end(), {"--log-level", *options_.log_level});
    const std::string command = absl::StrJoin(argv, " ");
    FUSIONLLM_ASSIGN_OR_RETURN(ChildProcess child,
                               ChildProcess::Start({executor.name, std::move(argv), LogPath(executor.name), /*pipe_stdout=*/false}));
    LogStart(child, command);
    return child;
  }

  absl::StatusOr<SessionResult> Watch() {
    FUSIONLLM_RETURN_IF_ERROR(StartScheduler());
    while (true) {
      Wait();
      if (signals_.Take()) stop_requests_ = signals_.stop_requests();
      FUSIONLLM_RETURN_IF_ERROR(ReadServer(scheduler_));
      if (broker_.child) FUSIONLLM_RETURN_IF_ERROR(ReadServer(broker_));
      HandleStopRequests();
      if (killed_) return SessionResult{kExitInterrupted, false, ""};
      if (!broker_.child) {
        if (stop_asked_) return SessionResult{kExitInterrupted, false, ""};
        if (scheduler_.said) FUSIONLLM_RETURN_IF_ERROR(StartBroker());
      } else if (broker_.said && !executors_started_) {
        executors_started_ = true;
        observer_.OnListening(broker_.address);
        FUSIONLLM_RETURN_IF_ERROR(StartExecutors());
      }
      FUSIONLLM_RETURN_IF_ERROR(NoticeExecutors());
      FUSIONLLM_RETURN_IF_ERROR(CheckScheduler());
      if (broker_.child && !broker_.open && broker_.child->Poll() && !WaitsForOtherEnds()) {
        FUSIONLLM_ASSIGN_OR_RETURN(const bool restarted, MaybeRestartBroker());
        if (!restarted) return Conclude();
      }
      for (const Server* server : {&scheduler_, &broker_}) {
        if (server->child && !server->said && server->open && Clock::now() > server->said_by) {
          return absl::DeadlineExceededError(absl::StrFormat("%s did not say where it listens within %g s%s", server->name,
                                                             options_.start_limit_s, LogTail(*server->child)));
        }
      }
    }
  }

  // Blocks until a child printed or ended, a signal came or a deadline passed.
  void Wait() {
    std::vector<pollfd> fds = {{signals_.fd(), POLLIN, 0}};
    std::optional<Clock::time_point> deadline = stop_at_;
    if (lonely_at_) deadline = std::min(deadline.value_or(*lonely_at_), *lonely_at_);
    if (restart_at_) deadline = std::min(deadline.value_or(*restart_at_), *restart_at_);
    if (remind_at_) deadline = std::min(deadline.value_or(*remind_at_), *remind_at_);
    for (Server* server : {&scheduler_, &broker_}) {
      if (!server->child) continue;
      if (server->open) fds.push_back({server->child->stdout_fd(), POLLIN, 0});
      if (!server->said && server->open) deadline = std::min(deadline.value_or(server->said_by), server->said_by);
    }
    // Children's ends come as SIGCHLD, so there is nothing to wake up for in between but deadlines.
    int timeout_ms = -1;
    if (deadline) {
      const double left_ms = std::chrono::duration<double, std::milli>(*deadline - Clock::now()).count();
      timeout_ms = static_cast<int>(std::clamp(std::ceil(left_ms), 0.0, 3600e3));
    }
    poll(fds.data(), fds.size(), timeout_ms);
  }

  absl::Status ReadServer(Server& server) {
    if (!server.open) return absl::OkStatus();
    std::vector<std::string> lines;
    FUSIONLLM_ASSIGN_OR_RETURN(server.open, server.reader.Read(server.child->stdout_fd(), lines));
    for (const std::string& line : lines) {
      if (absl::StartsWith(line, kListening)) {
        server.address = std::string(absl::StripAsciiWhitespace(absl::StripPrefix(line, kListening)));
        server.said = true;
      } else if (absl::StartsWith(line, kMetrics)) {
        const std::string url(absl::StripPrefix(line, kMetrics));
        observer_.OnLog(base::LogLevel::kInfo, absl::StrCat(server.name, ": metrics on ", url));
        server.metrics = std::string(absl::StripSuffix(absl::StripPrefix(url, "http://"), "/metrics"));
      } else if (&server == &broker_) {
        server.said_by = After(options_.start_limit_s);  // it is at work: it may have much to fetch
        BrokerLine(line);
      }
    }
    return absl::OkStatus();
  }

  void BrokerLine(const std::string& line) {
    const absl::StatusOr<LineType> type = recorder_.Add(line);
    if (!type.ok()) {
      // A broker that was killed may leave half a line; anything else is for the eyes of a developer.
      if (broker_.open) observer_.OnNotice(absl::StrCat("the broker printed something unexpected, ", type.status().message()));
      return;
    }
    if (const std::string busy = load_.On(*type, Processes(), run_); !busy.empty()) observer_.OnNotice(busy);
    if (*type == LineType::kStep && options_.stop_after_s && !stop_at_ && !time_was_up_) stop_at_ = After(*options_.stop_after_s);
    if (*type == LineType::kError) failure_ = recorder_.error();
    if (!observer_.OnLine(*type, line, run_) && !reader_gone_) {
      reader_gone_ = true;
      ++own_stop_requests_;
    }
  }

  std::vector<pid_t> Processes() const {
    std::vector<pid_t> pids;
    for (const Executor& executor : executors_) pids.push_back(executor.child.pid());
    for (const Server* server : {&scheduler_, &broker_}) {
      if (server->child) pids.push_back(server->child->pid());
    }
    return pids;
  }

  void HandleStopRequests() {
    if (stop_at_ && Clock::now() >= *stop_at_) {
      stop_at_.reset();
      time_was_up_ = true;
      if (broker_.child) broker_.child->Signal(SIGTERM);
    }
    const int requests = stop_requests_ - stop_requests_at_start_ + own_stop_requests_;
    if (requests >= 1 && !stop_asked_) {
      stop_asked_ = true;
      if (broker_.child) {
        if (!reader_gone_) {
          const bool trains = run_.plans > 0 || run_.steps.size() > run_.earlier_steps;
          observer_.OnNotice(EndOfCopies().value_or(
              absl::StrCat("stopping", trains ? " after this step" : " before the first step", "; interrupt once more to end at once")));
          remind_at_ = After(options_.stop_reminder_s);
        }
        broker_.child->Signal(SIGTERM);
      }
    }
    if (requests >= 2) killed_ = true;
    if (remind_at_ && Clock::now() >= *remind_at_) {
      remind_at_.reset();
      if (broker_.child && !broker_.child->Poll()) observer_.OnNotice(StillStopping());
    }
  }

  // Of a run that has only copies left to make; the broker may have reported since that one failed.
  std::optional<std::string> EndOfCopies() const {
    const auto copying = std::find_if(run_.events.begin(), run_.events.end(), [](const auto& event) { return event.reason == kCopying; });
    if (copying == run_.events.end()) return std::nullopt;
    return absl::StrFormat(kStopWhileCopying, copying->message);
  }

  std::string StillStopping() const {
    if (const auto copies = EndOfCopies()) return absl::StrCat("still waiting: ", *copies);
    const std::string last = run_.events.empty() ? "" : run_.events.back().reason;
    const bool collects = std::find(std::begin(kCollecting), std::end(kCollecting), last) != std::end(kCollecting);
    return collects ? absl::StrFormat(kStillCollecting, run_.events.back().message) : std::string(kStillStopping);
  }

  absl::Status NoticeExecutors() {
    for (Executor& executor : executors_) {
      if (executor.noticed || !executor.child.Poll()) continue;
      executor.noticed = true;
      // When the broker is done they are asked to go: only an end with an error is worth a word.
      const ExitStatus& end = *executor.child.Poll();
      if (end.exit_code == 0 || end.exit_code == kExecutorRunFailed || stop_asked_) continue;
      const std::string what = absl::StrCat("executor ", executor.child.name(), " ended: ", Describe(end), LogTail(executor.child));
      // Before the first plan nothing is lost by an end: one that was killed is started again, and for one that fails of itself the broker
      // would wait in vain. Machines that join may come in the place of others, but not in that of those that have the data.
      const bool awaited = options_.listen || !options_.join_timeout_seconds;
      const bool needed = run_.plans == 0 && awaited && broker_.child && !broker_.child->Poll();
      if (needed && end.signal && executor.restarts < kMaxRestarts) {
        ++executor.restarts;
        observer_.OnNotice(absl::StrFormat("executor %s was %s; starting it again (%d of %d)", executor.child.name(), Describe(end),
                                           executor.restarts, kMaxRestarts));
        FUSIONLLM_ASSIGN_OR_RETURN(executor.child, StartExecutor(executor.what));
        executor.noticed = false;
        continue;
      }
      if (needed && failed_executor_.empty()) {
        failed_executor_ = what;
        broker_.child->Signal(SIGTERM);
      } else {
        observer_.OnNotice(what);
      }
    }
    // Without executors, and with no others to come, the broker would wait for ever.
    const bool lonely =
        executors_started_ && !options_.listen && broker_.child && !broker_.child->Poll() &&
        std::all_of(executors_.begin(), executors_.end(), [](Executor& executor) { return executor.child.Poll().has_value(); });
    if (lonely && !lonely_at_ && !deserted_) lonely_at_ = After(options_.broker_exit_timeout_s);
    if (!lonely_at_ || Clock::now() < *lonely_at_) return absl::OkStatus();
    lonely_at_.reset();
    deserted_ = true;
    broker_.child->Signal(SIGTERM);
    return absl::OkStatus();
  }

  absl::Status CheckScheduler() {
    if (scheduler_.open || !scheduler_.child->Poll()) return absl::OkStatus();
    const ExitStatus end = *scheduler_.child->Poll();
    if (!end.signal || stop_asked_ || scheduler_.address.empty() || scheduler_.restarts >= kMaxRestarts) {
      if (stop_asked_ || scheduler_gone_) return absl::OkStatus();
      scheduler_gone_ = true;
      const std::string what = absl::StrCat("fusion-scheduler ended: ", Describe(end), LogTail(*scheduler_.child));
      if (!broker_.child) return absl::InternalError(what);
      observer_.OnNotice(what);  // the run goes on until somebody needs a plan
      return absl::OkStatus();
    }
    ++scheduler_.restarts;
    observer_.OnNotice(
        absl::StrFormat("the scheduler was %s; starting it again (%d of %d)", Describe(end), scheduler_.restarts, kMaxRestarts));
    return StartScheduler();
  }

  // What killed the broker may have killed executors as well. The next broker waits for those of which it does not know.
  bool WaitsForOtherEnds() {
    if (!broker_.child->Poll()->signal || stop_asked_) return false;
    if (!restart_at_) restart_at_ = After(options_.other_ends_s);
    return Clock::now() < *restart_at_;
  }

  absl::StatusOr<bool> MaybeRestartBroker() {
    restart_at_.reset();
    const ExitStatus end = *broker_.child->Poll();
    if (!end.signal || stop_asked_ || time_was_up_ || deserted_) return false;
    if (broker_.restarts >= kMaxRestarts) {
      observer_.OnNotice(absl::StrFormat("the broker was %s again; giving up after %d restarts", Describe(end), kMaxRestarts));
      return false;
    }
    ++broker_.restarts;
    observer_.OnNotice(absl::StrFormat("the broker was %s; starting it again (%d of %d)", Describe(end), broker_.restarts, kMaxRestarts));
    FUSIONLLM_RETURN_IF_ERROR(StartBroker());
    return true;
  }

  SessionResult Conclude() {
    const ExitStatus end = *broker_.child->Poll();
    SessionResult result;
    // The broker's own words go before: an executor may have failed because of what it was sent.
    if (!failed_executor_.empty() && !failure_) return SessionResult{kExitFailed, false, failed_executor_};
    if (deserted_) return SessionResult{kExitFailed, false, "all executors have ended; the logs say why"};
    result.exit_code = end.exit_code.value_or(stop_asked_ || time_was_up_ ? kExitInterrupted : kExitFailed);
    if (result.exit_code == kExitInterrupted && time_was_up_ && !stop_asked_) {
      result.exit_code = kExitDone;
      result.time_limit_reached = true;
    }
    if (result.exit_code == kExitDone || result.exit_code == kExitInterrupted) return result;
    if (failure_) {
      const bool plain = failure_->reason.empty();
      result.reason = failure_->reason;
      result.error = plain ? failure_->message : absl::StrCat(failure_->reason, ": ", failure_->message);
    } else {
      result.error = absl::StrCat("fusion-broker ended: ", Describe(end), LogTail(*broker_.child));
    }
    return result;
  }

  static std::string LogTail(const ChildProcess& child) {
    constexpr int kLines = 5, kLinesWithCause = 60;  // gRPC puts the stack behind what it says
    const std::string tail = TailOfFile(child.log_path(), kLines);
    const std::string cause = base::LikelyThreadLimit(TailOfFile(child.log_path(), kLinesWithCause));
    return absl::StrCat(cause.empty() ? "" : "; ", cause, tail.empty() ? "" : absl::StrCat("; ", child.log_path(), " ends:\n", tail));
  }

  // SIGTERM to all, SIGKILL to those that do not go in time.
  void EndAll() {
    std::vector<ChildProcess*> all;
    for (Executor& executor : executors_) all.push_back(&executor.child);
    for (Server* server : {&broker_, &scheduler_}) {
      if (server->child) all.push_back(&*server->child);
    }
    for (ChildProcess* child : all) child->Signal(killed_ ? SIGKILL : SIGTERM);
    const Clock::time_point deadline = After(options_.termination_grace_s);
    const auto all_gone = [&] {
      return std::all_of(all.begin(), all.end(), [](ChildProcess* child) { return child->Poll().has_value(); });
    };
    while (!all_gone() && Clock::now() < deadline) {
      pollfd fd = {signals_.fd(), POLLIN, 0};
      const double left_ms = std::chrono::duration<double, std::milli>(deadline - Clock::now()).count();
      poll(&fd, 1, static_cast<int>(std::clamp(std::ceil(left_ms), 0.0, 3600e3)));
      if (signals_.Take() && signals_.stop_requests() - stop_requests_at_start_ >= 2) break;  // asked twice: stop waiting
    }
    for (ChildProcess* child : all) child->Kill();
  }

  struct Executor {
    LocalExecutor what;
    ChildProcess child;
    int restarts = 0;
    bool noticed = false;
  };

  const SessionOptions& options_;
  SignalWatch& signals_;
  SessionObserver& observer_;
  report::Run& run_;
  RunRecorder recorder_;
  CpuLoadMonitor load_;
  Server scheduler_, broker_;
  std::vector<Executor> executors_;
  std::optional<Clock::time_point> restart_at_;  // of a broker that was killed
  bool executors_started_ = false;
  bool scheduler_gone_ = false;
  std::optional<RunRecorder::ErrorLine> failure_;
  const int stop_requests_at_start_ = signals_.stop_requests();
  int stop_requests_ = signals_.stop_requests();
  int own_stop_requests_ = 0;  // our output is not read any more
  bool reader_gone_ = false;
  bool stop_asked_ = false;
  bool killed_ = false;
  bool time_was_up_ = false;
  bool deserted_ = false;
  std::string failed_executor_;  // that ended before the first plan
  std::optional<Clock::time_point> stop_at_;
  std::optional<Clock::time_point> lonely_at_;
  std::optional<Clock::time_point> remind_at_;  // that the run is stopping
};

}  // namespace

absl::StatusOr<SessionResult> RunSession(const SessionOptions& options, SignalWatch& signals, SessionObserver& observer, report::Run& run) {
  return Session(options, signals, observer, run).Run();
}

}  // namespace fusionllm::cli
