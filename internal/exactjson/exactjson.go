// Package exactjson reads JSON objects of the wire contract, whose field names are
// case-sensitive. encoding/json alone takes any case.
package exactjson

import (
	"encoding/json"
	"errors"
	"fmt"
)

// The ways in which an input can be none of what was asked for.
var (
	ErrSyntax = errors.New("not JSON")
	ErrObject = errors.New("not a JSON object")
)

// FieldError says which field could not hold its value. It does not repeat the value.
type FieldError struct {
	Field string
	cause error
}

func (e *FieldError) Error() string {
	var wrongType *json.UnmarshalTypeError
	if errors.As(e.cause, &wrongType) {
		return fmt.Sprintf("field %q: a JSON %s cannot stand here", e.Field, wrongType.Value)
	}
	return fmt.Sprintf("field %q: %v", e.Field, e.cause)
}

func (e *FieldError) Unwrap() error { return e.cause }

// Field is a field to read: its exact name, and a pointer to where it goes.
type Field struct {
	Name string
	Into any
}

// Unmarshal reads the given fields of one JSON object and ignores all others. A
// field that is missing or null leaves its place as it is; of a field that stands
// there twice the last one counts. The error wraps ErrSyntax or ErrObject, or is a
// *FieldError.
func Unmarshal(data []byte, fields ...Field) error {
	var object map[string]json.RawMessage
	if err := json.Unmarshal(data, &object); err != nil {
		var wrongType *json.UnmarshalTypeError
		if errors.As(err, &wrongType) {
			return ErrObject
		}
		return ErrSyntax
	}
	if object == nil { // the input is null
		return ErrObject
	}
	for _, field := range fields {
		value, there := object[field.Name]
		if !there {
			continue
		}
		if err := json.Unmarshal(value, field.Into); err != nil {
			return &FieldError{Field: field.Name, cause: err}
		}
	}
	return nil
}
