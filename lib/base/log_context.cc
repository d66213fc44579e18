#include "lib/base/log_context.h"

#include <algorithm>

namespace fusionllm::base {
namespace {

thread_local const LogContext* innermost = nullptr;

}  // namespace

LogContext::LogContext(LogFields fields) : fields_(std::move(fields)), outer_(innermost) { innermost = this; }

LogContext::~LogContext() { innermost = outer_; }

LogFields LogContext::Current() {
  std::vector<const LogContext*> contexts;
  for (const LogContext* context = innermost; context != nullptr; context = context->outer_) contexts.push_back(context);
  LogFields all;
  for (auto context = contexts.rbegin(); context != contexts.rend(); ++context) {
    for (const auto& field : (*context)->fields_) {
      const auto there = std::find_if(all.begin(), all.end(), [&](const auto& known) { return known.first == field.first; });
      there == all.end() ? all.push_back(field) : void(there->second = field.second);
    }
  }
  return all;
}

}  // namespace fusionllm::base
