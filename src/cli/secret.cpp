// `tutti secret`: what jobs need and nobody is to read. Values come from a file or from stdin, never from the
// command line, and nothing here shows one.
#include <termios.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/bytes.hpp"
#include "base/files/files.hpp"
#include "base/text.hpp"
#include "cli/cluster.hpp"
#include "cli/commands.hpp"
#include "cli/local_time.hpp"
#include "cli/terminal.hpp"
#include "cli/text_table.hpp"
#include "control/cluster/secrets.hpp"

namespace tutti::cli {
namespace {

using nlohmann::json;

Error too_large() {
  return invalid("a secret has at most " + std::to_string(cluster::secret_bytes_max) + " bytes")
      .remedy("ship what is larger as a file, or set several");
}

// What is typed is not shown while this lives. A terminal that cannot do that is none to type a secret into.
class Unseen {
 public:
  Unseen() {
    if (::tcgetattr(STDIN_FILENO, &before_) != 0) return;
    termios quiet = before_;
    quiet.c_lflag &= ~static_cast<tcflag_t>(ECHO);
    quiet.c_lflag |= ECHONL;
    is_quiet_ = ::tcsetattr(STDIN_FILENO, TCSAFLUSH, &quiet) == 0;
  }
  Unseen(const Unseen&) = delete;
  Unseen& operator=(const Unseen&) = delete;
  ~Unseen() {
    if (is_quiet_) ::tcsetattr(STDIN_FILENO, TCSAFLUSH, &before_);
  }
  bool is_quiet() const { return is_quiet_; }

 private:
  termios before_{};
  bool is_quiet_ = false;
};

// To its end; of a terminal one line.
Result<std::string> read_stdin(bool one_line) {
  std::string value;
  std::array<std::byte, 4096> buffer;
  while (value.size() <= cluster::secret_bytes_max) {
    const auto count = files::read_some(STDIN_FILENO, buffer, "standard input");
    if (!count) return count.error();
    if (*count == 0) break;
    value.append(reinterpret_cast<const char*>(buffer.data()), *count);
    if (one_line && value.ends_with('\n')) break;
  }
  if (one_line && value.ends_with('\n')) value.pop_back();
  return value;
}

Result<std::string> read_value(const std::string& name, const std::string& file) {
  Result<std::string> value = std::string();
  if (!file.empty()) {
    value = files::read_existing_file(file, cluster::secret_bytes_max);
  } else if (::isatty(STDIN_FILENO) == 1) {
    const Unseen unseen;
    if (!unseen.is_quiet())
      return failed("this terminal would show what is typed")
          .remedy("pipe it in, or name a file: --file FILE");
    std::fprintf(stderr, "value of %s: ", name.c_str());
    value = read_stdin(true);
  } else {
    value = read_stdin(false);
  }
  if (!value) return value;
  if (value->size() > cluster::secret_bytes_max) return too_large();
  if (value->empty()) return invalid("it is empty").remedy("a secret has a byte at least");
  return value;
}

class Secret final : public Command {
 public:
  void declare(config::Flags& flags) override {
    flags.add_word("ACTION", action_, "`set`, `ls`, `rm` or `rotate-key`; none: ls", false);
    flags.add_word("NAME", name_, "of the secret", false);
    flags.add("queue", queue_, "of this queue, for the jobs in it and in its parts (default: your own)");
    flags.add("file", file_, "set: read the value from this file, as it is (default: from stdin)");
    flags.add("user", user_, "rm: of this user, as an admin; ls: only those of this user");
    flags.add("json", json_, "JSON for scripts");
  }

  Result<int> run() override {
    if (action_.empty()) action_ = "ls";
    if (auto fits = check(); !fits) return std::move(fits).error().within("secret");
    auto cluster = Cluster::find();
    if (!cluster) return std::move(cluster).error();
    auto done = action_ == "set"  ? set(*cluster)
                : action_ == "rm" ? remove(*cluster)
                : action_ == "ls" ? show(*cluster)
                                  : rotate(*cluster);
    if (!done)
      return std::move(done).error().within("secret " + action_ + (name_.empty() ? "" : " " + name_));
    return done;
  }

 private:
  Result<> check() const {
    const bool takes_name = action_ == "set" || action_ == "rm";
    if (!takes_name && action_ != "ls" && action_ != "rotate-key")
      return invalid("unknown word '" + action_.substr(0, 64) + "'")
          .remedy(did_you_mean(action_, std::vector<std::string>{"set", "ls", "rm", "rotate-key"}))
          .remedy("set NAME, ls, rm NAME or rotate-key");
    if (takes_name && name_.empty())
      return invalid("which one?").remedy("`tutti secret " + action_ + " NAME`");
    if (!takes_name && !name_.empty())
      return invalid("'" + name_.substr(0, 64) + "' is a word too many").remedy("`tutti secret --help`");
    if (takes_name) {
      if (auto named = cluster::check_secret_name(name_); !named) return named;
    }
    if (action_ != "set" && !file_.empty()) return invalid("--file is for `tutti secret set NAME`");
    if (action_ == "set" && !user_.empty())
      return invalid("nobody sets a secret of somebody else")
          .remedy("a secret for several is a queue's: --queue");
    if (action_ == "rotate-key" && (!queue_.empty() || !user_.empty()))
      return invalid("the key is one for all secrets").remedy("leave out --queue and --user");
    return {};
  }

  // The cluster's own token stands for nobody: then it is that of whoever runs this.
  Result<std::string> path(Cluster& cluster) const {
    const std::string path = "secrets/" + url_encode(name_);
    if (!queue_.empty()) return path + "?queue=" + url_encode(queue_);
    if (!user_.empty()) return path + "?user=" + url_encode(user_);
    const auto who = cluster.get("whoami");
    if (!who) return who.error();
    return who->value("cluster_token", false) ? path + "?user=" + url_encode(user_name()) : path;
  }

  Result<int> set(Cluster& cluster) const {
    auto value = read_value(name_, file_);
    if (!value) return std::move(value).error();
    auto at = path(cluster);
    if (!at) return std::move(at).error();
    cluster.client().send_as("application/octet-stream");
    if (auto done = cluster.put(*at, *value); !done) return std::move(done).error();
    if (json_) std::printf("%s\n", json{{"set", name_}, {"bytes", value->size()}}.dump().c_str());
    return exit_success;
  }

  Result<int> remove(Cluster& cluster) const {
    auto at = path(cluster);
    if (!at) return std::move(at).error();
    if (auto done = cluster.remove(*at); !done) return std::move(done).error();
    if (json_) std::printf("%s\n", json{{"removed", name_}}.dump().c_str());
    return exit_success;
  }

  Result<int> rotate(Cluster& cluster) const {
    auto key = cluster.post("secret-key/rotate");
    if (!key) return std::move(key).error();
    if (json_)
      std::printf("%s\n", key->dump().c_str());
    else
      print_text("secrets are sealed under the key " + key->value("key", "") +
                 " from now on, and those that there are soon\n");
    return exit_success;
  }

  bool is_asked_for(const json& secret) const {
    return (queue_.empty() || secret.value("queue", "") == queue_) &&
           (user_.empty() || secret.value("person", "") == user_);
  }

  Result<int> show(Cluster& cluster) const {
    auto document = cluster.secrets();
    if (!document) return std::move(document).error();
    json shown = json::array();
    for (auto& secret : document->at("secrets")) {
      if (is_asked_for(secret)) shown.push_back(std::move(secret));
    }
    if (const std::string error = document->value("error", ""); !error.empty())
      print_note("they cannot be opened, and jobs that ask for them are held: " + error);
    if (json_) {
      std::printf("%s\n", shown.dump().c_str());
      return exit_success;
    }
    TextTable table({"NAME", "OWNER", "BYTES", "CHANGED", "BY"});
    for (const auto& secret : shown) {
      const std::string queue = secret.value("queue", "");
      table.add({secret.value("name", ""), queue.empty() ? secret.value("person", "") : "queue " + queue,
                 std::to_string(secret.value("bytes", 0)), local_time(secret.value("changed_at", "")),
                 secret.value("changed_by", "")});
    }
    print_text(table.text());
    return exit_success;
  }

  std::string action_;
  std::string name_;
  std::string queue_;
  std::string file_;
  std::string user_;
  bool json_ = false;
};

}  // namespace

std::unique_ptr<Command> make_secret() { return std::make_unique<Secret>(); }

}  // namespace tutti::cli
