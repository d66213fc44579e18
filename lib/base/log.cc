#include "lib/base/log.h"

#include <atomic>
#include <cstdio>
#include <ctime>

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "lib/base/log_context.h"
#include "lib/base/printable_text.h"

namespace fusionllm::base {
namespace {

constexpr absl::string_view kNames[] = {"debug", "info", "warning", "error"};

std::string& Program() {
  static std::string& program = *new std::string;  // never destroyed: threads may log to the end
  return program;
}
std::atomic<LogLevel> min_level = LogLevel::kWarning;
std::atomic<LogFormat> line_format = LogFormat::kText;

// RFC 3339 in UTC.
std::string Now() {
  timespec now = {};
  clock_gettime(CLOCK_REALTIME, &now);
  tm parts = {};
  gmtime_r(&now.tv_sec, &parts);
  return absl::StrFormat("%04d-%02d-%02dT%02d:%02d:%02d.%03dZ", parts.tm_year + 1900, parts.tm_mon + 1, parts.tm_mday, parts.tm_hour,
                         parts.tm_min, parts.tm_sec, now.tv_nsec / 1'000'000);
}

std::string TextLine(LogLevel level, absl::string_view sentence) {
  return absl::StrCat(Now(), " ", Name(level), " ", Program(), Program().empty() ? "" : ": ", PrintableText(sentence), "\n");
}

std::string JsonLine(LogLevel level, absl::string_view sentence) {
  nlohmann::ordered_json line = {{"time", Now()}, {"level", std::string(Name(level))}, {"program", Program()}};
  for (const auto& [name, text] : LogContext::Current()) line[name] = text;
  line["message"] = std::string(sentence);
  return line.dump(-1, ' ', /*ensure_ascii=*/false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

}  // namespace

absl::string_view Name(LogLevel level) { return kNames[static_cast<int>(level)]; }

std::optional<LogLevel> ParseLogLevel(absl::string_view name) {
  for (const LogLevel level : {LogLevel::kDebug, LogLevel::kInfo, LogLevel::kWarning, LogLevel::kError}) {
    if (name == Name(level)) return level;
  }
  return std::nullopt;
}

absl::string_view Name(LogFormat format) { return format == LogFormat::kJson ? "json" : "text"; }

std::optional<LogFormat> ParseLogFormat(absl::string_view name) {
  for (const LogFormat format : {LogFormat::kText, LogFormat::kJson}) {
    if (name == Name(format)) return format;
  }
  return std::nullopt;
}

void StartLog(std::string program, LogLevel min, LogFormat format) {
  Program() = std::move(program);
  min_level = min;
  line_format = format;
}

void SetLogLevel(LogLevel min) { min_level = min; }

bool IsLogged(LogLevel level) { return level >= min_level; }

void Log(LogLevel level, absl::string_view sentence) {
  if (!IsLogged(level)) return;
  const std::string line = line_format == LogFormat::kJson ? JsonLine(level, sentence) : TextLine(level, sentence);
  std::fwrite(line.data(), 1, line.size(), stderr);  // unbuffered, so one write
}

}  // namespace fusionllm::base
