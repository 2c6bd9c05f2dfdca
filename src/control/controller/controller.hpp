// The controller as a program: its folder with store and tokens, its port, its loops.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "control/controller/audit_keeper.hpp"
#include "control/controller/janitor.hpp"
#include "control/controller/login.hpp"
#include "control/controller/tokens.hpp"
#include "net/pki/pki.hpp"

namespace tutti::controller {

struct ControllerOptions {
  std::string folder;                     // made by init_folder()
  std::string listen = "127.0.0.1:7070";  // port 0: the system picks one
  bool accept_older_store = false;        // than what was committed last: what is missing is forgotten
  // TLS with a certificate that somebody else has signed: people see it in place of the cluster's own.
  std::string tls_certificate;
  std::string tls_key;
  bool tls = false;                    // with the cluster's own on this machine, too
  std::vector<std::string> tls_names;  // more names and addresses by which it is called
  bool allow_join_token = false;       // of the folder, also where nodes can have certificates
  Duration certificate_life = pki::node_life;
  bool demands_isolation = false;             // nodes whose ranks do not run as their users take no work
  std::string record;                         // a file that gets a line for each job that ran, "" for none
  std::int64_t requests_per_second = 20'000;  // of one address; twice as many at once after a rest
  cluster::Retention keep;                    // finished jobs and lost nodes
  Bytes keep_blobs = kept_blobs_default;      // shipped folders that no unfinished job needs
  Duration keep_blobs_age = kept_blobs_age_default;
  Bytes keep_audit = kept_audit_default;  // the audit log
  Duration keep_audit_age = kept_audit_age_default;
  LoginOptions login;
};

// Makes the folder with an admin token and a join token, as tokens.hpp tells, and the cluster's authority.
Result<> init_folder(const std::string& folder);

// The controller that uses this folder now, by its pid: 0 if that is not known, nothing if none does.
std::optional<pid_t> folder_holder(const std::string& folder);

// Runs until SIGTERM, SIGINT or SIGHUP. `ready` is called with "HOST:PORT" once the port is open.
Result<> run_controller(const ControllerOptions& options,
                        const std::function<void(const std::string&)>& ready);

}  // namespace tutti::controller
