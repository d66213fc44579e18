// A transport whose answers a test writes down beforehand. Thread-safe.
#pragma once

#include <deque>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "lib/base/mutex.h"
#include "lib/kube/http/transport.h"

namespace fusionllm::kube::testing {

class ScriptedTransport : public Transport {
 public:
  using Answer = std::function<absl::StatusOr<HttpResponse>(const HttpRequest&)>;

  // The next call without an answer yet gets this one.
  void Then(Answer answer) {
    const base::MutexLock lock(mutex_);
    answers_.push_back(std::move(answer));
  }
  void Then(int code, std::string body, std::vector<HttpHeader> headers = {}) {
    Then([response = HttpResponse{code, std::move(headers), std::move(body)}](const HttpRequest&) { return response; });
  }
  void ThenFail(absl::Status status) {
    Then([status](const HttpRequest&) { return status; });
  }

  // All requests so far.
  std::vector<HttpRequest> requests() const {
    const base::MutexLock lock(mutex_);
    return requests_;
  }
  UnaryLimits unary_limits() const {
    const base::MutexLock lock(mutex_);
    return unary_limits_;
  }
  StreamLimits stream_limits() const {
    const base::MutexLock lock(mutex_);
    return stream_limits_;
  }

  // What the sink of the last stream said after its data.
  absl::Duration idle_timeout() const {
    const base::MutexLock lock(mutex_);
    return idle_timeout_;
  }

  absl::StatusOr<HttpResponse> Send(const HttpRequest& request, const UnaryLimits& limits, std::stop_token) override {
    {
      const base::MutexLock lock(mutex_);
      unary_limits_ = limits;
    }
    return Next(request);
  }

  // The body of an answer of 2xx is one chunk.
  absl::StatusOr<HttpResponse> Stream(const HttpRequest& request, const StreamLimits& limits, StreamSink& sink, std::stop_token) override {
    {
      const base::MutexLock lock(mutex_);
      stream_limits_ = limits;
    }
    absl::StatusOr<HttpResponse> response = Next(request);
    if (!response.ok() || response->code / 100 != 2) return response;
    const std::string body = std::exchange(response->body, "");
    if (absl::Status status = sink.OnOpen(*response); !status.ok()) return status;
    if (absl::Status status = sink.OnData(body); !status.ok()) return status;
    {
      const base::MutexLock lock(mutex_);
      idle_timeout_ = sink.IdleTimeout();
    }
    return response;
  }

 private:
  absl::StatusOr<HttpResponse> Next(const HttpRequest& request) {
    Answer answer;
    {
      const base::MutexLock lock(mutex_);
      requests_.push_back(request);
      if (answers_.empty()) return absl::InternalError("the test has no more answers");
      answer = std::move(answers_.front());
      answers_.pop_front();
    }
    return answer(request);
  }

  mutable base::Mutex mutex_;
  std::deque<Answer> answers_ ABSL_GUARDED_BY(mutex_);
  std::vector<HttpRequest> requests_ ABSL_GUARDED_BY(mutex_);
  UnaryLimits unary_limits_ ABSL_GUARDED_BY(mutex_);
  StreamLimits stream_limits_ ABSL_GUARDED_BY(mutex_);
  absl::Duration idle_timeout_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace fusionllm::kube::testing
