const element = (name, text, ...children) => {
  const made = document.createElement(name);
  if (text) made.textContent = text;
  made.append(...children);
  return made;
};
const named = (description, schema) =>
  schema && schema.$ref ? description.components.schemas[schema.$ref.split("/").pop()] : schema;
const typeOf = (description, schema) => {
  const found = named(description, schema) || {};
  const choices = found.oneOf || found.anyOf;
  if (choices) return choices.map((choice) => typeOf(description, choice)).join(" or ");
  if (found.enum) return found.enum.join(" | ");
  if (found.type === "array") return "list of " + (found.items.$ref ? found.items.$ref.split("/").pop() : found.items.type);
  return [].concat(found.type || "object").join(" or ");
};
const fields = (description, schema) => {
  const found = named(description, schema);
  if (!found || !found.properties) return element("p", found ? typeOf(description, found) : "");
  const table = element("table");
  for (const [name, property] of Object.entries(found.properties)) {
    const about = (named(description, property) || {}).description || "";
    table.append(element("tr", "",
      element("td", "", element("code", name)),
      element("td", typeOf(description, property) + ((found.required || []).includes(name) ? "" : ", optional")),
      element("td", property.description || about)));
  }
  return table;
};
const sample = (description, schema, depth = 0) => {
  const found = named(description, schema) || {};
  const choices = found.oneOf || found.anyOf;
  if (choices) return sample(description, choices.find((choice) => choice.type !== "null"), depth);
  if (found.type === "array") return depth > 3 ? [] : [sample(description, found.items, depth + 1)];
  if (found.properties) {
    const names = Object.keys(found.properties).filter((name) => (found.required || []).includes(name));
    return Object.fromEntries(names.map((name) => [name, sample(description, found.properties[name], depth + 1)]));
  }
  return [].concat(found.type).includes("integer") ? 1 : "";
};
fetch("/openapi.json").then((answer) => answer.json()).then((description) => {
  document.getElementById("about").textContent = description.info.description;
  const calls = document.getElementById("calls");
  calls.textContent = "";
  for (const [path, methods] of Object.entries(description.paths)) {
    for (const [method, call] of Object.entries(methods)) {
      const body = call.requestBody && Object.values(call.requestBody.content)[0].schema;
      const ok = call.responses["200"].content["application/json"].schema;
      const details = element("details", "", element("summary", "", element("b", method.toUpperCase()), element("code", path)));
      if (call.summary) details.append(element("p", call.summary));
      if (body) details.append(element("h4", "Body"), fields(description, body));
      details.append(element("h4", "Answer"), fields(description, ok));
      const url = element("textarea", path), input = element("textarea"), output = element("pre", "");
      url.className = "url";
      input.value = body ? JSON.stringify(sample(description, body), null, 2) : "";
      const send = element("button", "Send");
      send.onclick = async () => {
        output.textContent = "…";
        const sent = body ? { headers: { "content-type": "application/json" }, body: input.value } : {};
        const answer = await fetch(url.value, { method: method.toUpperCase(), ...sent });
        output.textContent = answer.status + "\n" + (await answer.text());
      };
      details.append(element("h4", "Try it"), url);
      if (body) details.append(input);
      details.append(send, output);
      calls.append(details);
    }
  }
});
