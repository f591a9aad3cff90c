// The real Gitea server, which the tests use as their forge.
//
// It is Gitea's own main, and takes Gitea's own arguments, with one thing added: when the first argument
// is --exit-with-stdin it shuts down as soon as standard input ends, as it does when the parent dies, so
// that no test leaves a server behind. Settings, users and repositories are the test's business: see
// ../README.md.
package main

import (
	"io"
	"os"
	"runtime"
	"runtime/debug"
	"syscall"
	"time"

	"code.gitea.io/gitea/cmd"
	"code.gitea.io/gitea/modules/log"
	_ "code.gitea.io/gitea/modules/markup/markdown"
	"code.gitea.io/gitea/modules/setting"
	"github.com/urfave/cli/v3"
)

// Gitea gives requests in flight a minute by default; a test has no such patience.
const shutdownGrace = 8 * time.Second

func main() {
	args := os.Args
	if len(args) > 1 && args[1] == "--exit-with-stdin" {
		args = append(args[:1:1], args[2:]...)
		go stopWithStdin()
	}

	version := giteaVersion()
	builtWith := " built with " + runtime.Version()
	setting.AppVer = version
	setting.AppBuiltWith = builtWith
	setting.AppStartTime = time.Now().UTC()
	cli.OsExiter = func(code int) {
		log.GetManager().Close()
		os.Exit(code)
	}
	app := cmd.NewMainApp(cmd.AppVersion{Version: version, Extra: builtWith})
	_ = cmd.RunMainApp(app, args...) // it reports its errors by itself
	log.GetManager().Close()
}

// giteaVersion is the one that go.mod requires: clients look at it to know what the server can do.
func giteaVersion() string {
	if build, ok := debug.ReadBuildInfo(); ok {
		for _, module := range build.Deps {
			if module.Path == "code.gitea.io/gitea" {
				return module.Version[1:]
			}
		}
	}
	return "development"
}

func stopWithStdin() {
	_, _ = io.Copy(io.Discard, os.Stdin)
	_ = syscall.Kill(os.Getpid(), syscall.SIGTERM)
	time.Sleep(shutdownGrace)
	os.Exit(1)
}
