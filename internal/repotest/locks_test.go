package repotest

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// logMethods are the methods of a slog.Logger that write.
var logMethods = map[string]bool{"Debug": true, "Info": true, "Warn": true, "Error": true, "Log": true, "LogAttrs": true, "DebugContext": true, "InfoContext": true, "WarnContext": true, "ErrorContext": true}

// underLock matches the comment of a function that its callers call with a lock held.
var underLock = regexp.MustCompile(`(?i)(lock|mu) is held|holds (the lock|mu)\b|caller holds`)

// No function logs while it holds a mutex: a log handler may block, and everybody who needs the mutex would wait for it.
// The test sees the calls in the same function, and in functions whose comment says that a lock is held.
func TestNoFunctionLogsUnderALock(t *testing.T) {
	var found []string
	functions := 0
	require.NoError(t, filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") || strings.HasPrefix(path, "internal/testrig") {
			return err
		}
		set := token.NewFileSet()
		file, err := parser.ParseFile(set, path, nil, parser.ParseComments)
		if err != nil {
			return err
		}
		for _, decl := range file.Decls {
			f, ok := decl.(*ast.FuncDecl)
			if !ok || f.Body == nil {
				continue
			}
			functions++
			w := lockWalk{held: map[string]bool{}}
			if underLock.MatchString(f.Doc.Text()) {
				w.held["the caller's lock"] = true
			}
			w.stmts(f.Body.List)
			for _, pos := range w.logs {
				found = append(found, fmt.Sprintf("%s: %s logs under a lock", set.Position(pos), f.Name.Name))
			}
		}
		return nil
	}))
	require.Greater(t, functions, 1000)
	require.Empty(t, found, "log after the unlock")
}

// lockWalk follows the statements of a function in their order.
type lockWalk struct {
	held map[string]bool // by the text of the mutex
	logs []token.Pos     // under a lock
}

func (w *lockWalk) stmts(list []ast.Stmt) {
	for _, s := range list {
		w.stmt(s)
	}
}

// branch follows statements that may not run: what they unlock stays held for those behind them, unless they return.
func (w *lockWalk) branch(list []ast.Stmt) {
	before := make(map[string]bool, len(w.held))
	for k := range w.held {
		before[k] = true
	}
	w.stmts(list)
	w.held = before
}

func (w *lockWalk) stmt(s ast.Stmt) {
	switch s := s.(type) {
	case nil:
	case *ast.ExprStmt:
		w.expr(s.X)
	case *ast.DeferStmt: // the call itself runs at the end
		w.literal(s.Call)
	case *ast.GoStmt: // it runs elsewhere
		w.literal(s.Call)
	case *ast.BlockStmt:
		w.stmts(s.List)
	case *ast.LabeledStmt:
		w.stmt(s.Stmt)
	case *ast.IfStmt:
		w.stmt(s.Init)
		w.expr(s.Cond)
		w.branch(s.Body.List)
		if s.Else != nil {
			w.branch([]ast.Stmt{s.Else})
		}
	case *ast.ForStmt:
		w.stmt(s.Init)
		w.branch(s.Body.List)
	case *ast.RangeStmt:
		w.branch(s.Body.List)
	case *ast.SwitchStmt:
		w.stmt(s.Init)
		w.cases(s.Body)
	case *ast.TypeSwitchStmt:
		w.stmt(s.Init)
		w.cases(s.Body)
	case *ast.SelectStmt:
		w.cases(s.Body)
	case *ast.AssignStmt:
		for _, e := range s.Rhs {
			w.expr(e)
		}
	case *ast.ReturnStmt:
		for _, e := range s.Results {
			w.expr(e)
		}
	}
}

func (w *lockWalk) literal(c *ast.CallExpr) {
	if f, ok := c.Fun.(*ast.FuncLit); ok {
		w.expr(f)
	}
}

func (w *lockWalk) cases(body *ast.BlockStmt) {
	for _, c := range body.List {
		switch c := c.(type) {
		case *ast.CaseClause:
			w.branch(c.Body)
		case *ast.CommClause:
			w.branch(c.Body)
		}
	}
}

// expr follows an expression. A function literal runs later, with locks of its own.
func (w *lockWalk) expr(e ast.Expr) {
	ast.Inspect(e, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncLit:
			inner := lockWalk{held: map[string]bool{}}
			inner.stmts(n.Body.List)
			w.logs = append(w.logs, inner.logs...)
			return false
		case *ast.CallExpr:
			w.call(n)
		}
		return true
	})
}

func (w *lockWalk) call(c *ast.CallExpr) {
	f, ok := c.Fun.(*ast.SelectorExpr)
	if !ok {
		return
	}
	on := text(f.X)
	switch name := f.Sel.Name; {
	case name == "Lock" || name == "RLock":
		w.held[on] = true
	case name == "Unlock" || name == "RUnlock":
		delete(w.held, on)
	case logMethods[name] && len(w.held) > 0 && regexp.MustCompile(`(?i)(log|logger|logger\(\))$`).MatchString(on):
		w.logs = append(w.logs, c.Pos())
	}
}

// text is an expression of names as it is written.
func text(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.Ident:
		return e.Name
	case *ast.SelectorExpr:
		return text(e.X) + "." + e.Sel.Name
	case *ast.CallExpr:
		return text(e.Fun) + "()"
	case *ast.IndexExpr:
		return text(e.X) + "[]"
	}
	return "?"
}
