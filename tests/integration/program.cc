#include "tests/integration/program.h"

#include <poll.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"

namespace fusionllm::integration {
namespace {

using nlohmann::json;

constexpr absl::Duration kTimeout = absl::Minutes(2);

}  // namespace

Program::Program(const std::string& name, std::vector<std::string> arguments, const std::string& log, const std::string& folder) {
  arguments.insert(arguments.begin(), absl::StrCat(std::getenv("FUSIONLLM_BIN_DIR"), "/", name));
  const std::filesystem::path here = std::filesystem::current_path();
  if (!folder.empty()) std::filesystem::current_path(folder);
  child_.emplace(*cli::ChildProcess::Start({name, std::move(arguments), log, /*pipe_stdout=*/true}));
  std::filesystem::current_path(here);
}

std::string Program::WaitFor(const std::function<bool(const std::string&)>& wanted) {
  const absl::Time deadline = absl::Now() + kTimeout;
  while (true) {
    for (; next_ < lines_.size(); ++next_) {
      if (wanted(lines_[next_])) return lines_[next_++];
    }
    if (!open_ || absl::Now() > deadline) return "";
    pollfd out{.fd = child_->stdout_fd(), .events = POLLIN, .revents = 0};
    poll(&out, 1, 100);
    open_ = *reader_.Read(child_->stdout_fd(), lines_);
  }
}

json Program::WaitForJson(const std::function<bool(const json&)>& wanted) {
  json found;
  (void)WaitFor([&](const std::string& line) {
    const json parsed = json::parse(line, nullptr, /*allow_exceptions=*/false);
    const bool is_it = parsed.is_object() && wanted(parsed);
    if (is_it) found = parsed;
    return is_it;
  });
  return found;
}

std::string Program::Address() {
  const std::string line = WaitFor([](const std::string& text) { return text.starts_with("listening on "); });
  return std::string(absl::StripPrefix(line, "listening on "));
}

bool Program::ReadUntil(absl::Time deadline) {
  while (open_ && absl::Now() < deadline) {
    pollfd out{.fd = child_->stdout_fd(), .events = POLLIN, .revents = 0};
    poll(&out, 1, static_cast<int>(std::clamp<int64_t>(absl::ToInt64Milliseconds(deadline - absl::Now()), 1, 100)));
    if (out.revents != 0) open_ = *reader_.Read(child_->stdout_fd(), lines_);
  }
  return open_;
}

int Program::Wait() {
  (void)WaitFor([](const std::string&) { return false; });
  const absl::Time deadline = absl::Now() + kTimeout;
  while (!child_->Poll().has_value() && absl::Now() < deadline) poll(nullptr, 0, 10);
  return child_->Poll().has_value() ? child_->Poll()->exit_code.value_or(-1) : -1;
}

}  // namespace fusionllm::integration
