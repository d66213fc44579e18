// What the log lines of a stretch of work belong to: a job, a cluster, one pass of a reconciler. Lines in JSON carry it (log.h); those in
// text do not, their sentences name it.
//
// By thread: lines that other threads write meanwhile are not concerned. Contexts nest like the scopes that they live in; of two fields of
// one name the inner one is written.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace fusionllm::base {

// Name and text of each.
using LogFields = std::vector<std::pair<std::string, std::string>>;

class LogContext {
 public:
  // Until it is destroyed, on the same thread; `fields` must not have names that every line has (time, level, program, message).
  explicit LogContext(LogFields fields);
  LogContext(const LogContext&) = delete;
  LogContext& operator=(const LogContext&) = delete;
  ~LogContext();

  // Of the calling thread now: outer ones first, each name once.
  static LogFields Current();

 private:
  const LogFields fields_;
  const LogContext* const outer_;
};

}  // namespace fusionllm::base
