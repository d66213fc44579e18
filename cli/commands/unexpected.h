// What is said of a command line with words that fusionctl does not take: what they were probably meant to be, and what to write instead.
#pragma once

#include <CLI/CLI.hpp>

namespace fusionllm::cli {

// After a parse that ended with words left over: of no command at all, and of one that was found. They tell stderr (CLI11 would list the
// words, the last first, and no way out) and give the exit code.
int UnknownCommand(const CLI::App& app);
int UnexpectedArguments(const CLI::App& app);

}  // namespace fusionllm::cli
