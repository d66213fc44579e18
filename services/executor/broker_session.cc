#include "services/executor/broker_session.h"

#include <chrono>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "lib/base/log.h"
#include "lib/transport/grpc/reconnecting_channel.h"
#include "proto/fusionllm/v1/broker.pb.h"
#include "services/executor/broker_channel.h"

namespace fusionllm::services {
namespace {

using Clock = std::chrono::steady_clock;

constexpr auto kRedialPause = std::chrono::milliseconds(200);
// For the broker to hear that this executor leaves. One that does not answer notices by the broken stream.
constexpr auto kLeaveTimeout = std::chrono::seconds(1);

}  // namespace

absl::Status BrokerSession::Run(const HelloFunction& hello, const MessageFunction& on_message) {
  transport::ReconnectingChannel channel([this] { return BrokerChannel(options_.address, options_.credentials, /*own_connection=*/false); },
                                         options_.renewal);
  const auto timeout = std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(options_.timeout_seconds));
  Clock::time_point give_up = Clock::now() + timeout;
  bool away = false;  // and said so
  while (true) {
    bool over = false, welcomed = false;
    const absl::Status status = Attend(
        *v1::Broker::NewStub(channel.ChannelForDial()), hello,
        [&](const v1::BrokerMessage& message) {
          welcomed = true;
          if (away) base::Log(base::LogLevel::kWarning, absl::StrCat("the broker at ", options_.address, " is back"));
          away = false;
          on_message(message);
        },
        &over);
    base::UniqueLock lock(mutex_);
    if (over) {
      stopped_ = true;
      news_.notify_all();
      return status;
    }
    if (stopped_) return absl::CancelledError("the executor was asked to stop");
    if (welcomed) give_up = Clock::now() + timeout;
    if (Clock::now() >= give_up) {
      stopped_ = true;
      news_.notify_all();
      return absl::UnavailableError(absl::StrCat("broker at ", options_.address, " cannot be reached: ", std::string(status.message())));
    }
    if (!away) {
      base::Log(base::LogLevel::kWarning, absl::StrFormat("the broker at %s cannot be reached (%s); trying for up to %g s",
                                                          options_.address, std::string(status.message()), options_.timeout_seconds));
    }
    away = true;
    RunTasks(lock);
    news_.wait_for(lock, kRedialPause, [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return stopped_ || !tasks_.empty(); });
  }
}

absl::Status BrokerSession::Attend(v1::Broker::Stub& stub, const HelloFunction& hello, const MessageFunction& on_message, bool* over) {
  grpc::ClientContext context;
  context.set_wait_for_ready(false);
  {
    const base::MutexLock lock(mutex_);
    if (stopped_) return absl::CancelledError("stopped");
    context_ = &context;
    written_ = 0;
    stream_up_ = true;
  }
  const auto stream = stub.Attend(&context);
  v1::ExecutorMessage first;
  *first.mutable_hello() = hello();
  std::thread writer([&] {
    const auto every = std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(options_.contact_seconds));
    Clock::time_point tell_at = Clock::now() + every;
    bool good = stream->Write(first);
    while (good) {
      if (Clock::now() >= tell_at) {
        tell_at = Clock::now() + every;
        if (connected_) options_.on_contact();
      }
      v1::ExecutorMessage next;
      {
        base::UniqueLock lock(mutex_);
        const bool news = news_.wait_until(lock, tell_at, [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
          return !stream_up_ || stopped_ || written_ < unacknowledged_.size() || !tasks_.empty();
        });
        if (!news) continue;
        RunTasks(lock);
        if (!stream_up_) break;
        if (stopped_) {
          next.mutable_leaving();
          lock.unlock();
          stream->Write(next);
          break;
        }
        if (written_ == unacknowledged_.size()) continue;
        next = unacknowledged_[written_++];
      }
      good = stream->Write(next);
    }
    stream->WritesDone();
  });
  absl::Status refusal;
  bool answered = false;
  v1::BrokerMessage message;
  while (stream->Read(&message)) {
    if (!answered) options_.on_contact();
    answered = true;
    connected_ = !message.has_refusal();
    if (message.has_ack()) {
      Acknowledge(message.ack().sequence());
    } else if (message.has_refusal()) {
      refusal = absl::FailedPreconditionError(absl::StrCat(message.refusal().reason(), ": ", message.refusal().message()));
      *over = true;
    } else {
      on_message(message);
      if (message.has_shutdown()) {
        *over = true;
        break;
      }
    }
  }
  if (connected_.exchange(false)) options_.on_contact();
  {
    const base::MutexLock lock(mutex_);
    stream_up_ = false;
    news_.notify_all();
  }
  if (*over) context.TryCancel();
  writer.join();
  const grpc::Status status = stream->Finish();
  {
    const base::MutexLock lock(mutex_);
    context_ = nullptr;
    news_.notify_all();
  }
  if (*over) return refusal;
  if (status.error_code() == grpc::StatusCode::UNAUTHENTICATED || status.error_code() == grpc::StatusCode::FAILED_PRECONDITION) {
    *over = true;
    return absl::Status(static_cast<absl::StatusCode>(status.error_code()), status.error_message());
  }
  return absl::UnavailableError(status.ok() ? "the broker closed the stream" : status.error_message());
}

void BrokerSession::Acknowledge(uint64_t sequence) {
  const base::MutexLock lock(mutex_);
  while (!unacknowledged_.empty() && unacknowledged_.front().sequence() <= sequence) {
    unacknowledged_.pop_front();
    if (written_ > 0) --written_;
  }
  news_.notify_all();
}

void BrokerSession::Report(v1::ExecutorMessage message) {
  const base::MutexLock lock(mutex_);
  message.set_sequence(next_sequence_++);
  unacknowledged_.push_back(std::move(message));
  news_.notify_all();
}

void BrokerSession::Post(std::function<void()> task) {
  const base::MutexLock lock(mutex_);
  tasks_.push_back(std::move(task));
  news_.notify_all();
}

void BrokerSession::RunTasks(std::unique_lock<std::mutex>& lock) {
  while (!tasks_.empty()) {
    const std::function<void()> task = std::move(tasks_.front());
    tasks_.pop_front();
    lock.unlock();
    task();
    lock.lock();
  }
}

void BrokerSession::Stop() {
  base::UniqueLock lock(mutex_);
  stopped_ = true;
  news_.notify_all();
  // Its writer says so, and ends the stream.
  news_.wait_for(lock, kLeaveTimeout, [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return context_ == nullptr; });
  if (context_ != nullptr) context_->TryCancel();
}

void BrokerSession::Flush(double seconds) {
  base::UniqueLock lock(mutex_);
  news_.wait_for(lock, std::chrono::duration<double>(seconds),
                 [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return stopped_ || unacknowledged_.empty(); });
}

}  // namespace fusionllm::services
