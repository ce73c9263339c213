//! `docs/states.md` and `docs/images/states.svg`, generated from the table of transitions.

use crate::state::{ARROWS, CANCELED, COMPLETED, ERRORED, INVISIBLE, PENDING, RUNNING, State};

/// `docs/states.md`: the picture and a table of every transition.
pub fn page() -> String {
    let mut page = String::from(
        "# States of a message\n\
         `model/src/drawing.rs` generates this page and its picture from the table in `model/src/state.rs`. A test fails \
         when one of them\ndiffers from the table. `UPDATE_DOCS=1 cargo test -p tallystone-model` writes both again.\n\n\
         ![The states of a message and the calls that change them](images/states.svg)\n\n\
         | state | meaning |\n|---|---|\n",
    );
    for state in State::ALL {
        page += &format!("| {} | {} |\n", state.name(), meaning(state));
    }
    page += "\n## Transitions\n\
             `–` means that the message does not exist. The picture omits transitions that do not change the state.\n\n\
             | from | to | by | when |\n|---|---|---|---|\n";
    for arrow in ARROWS {
        let cell = |state: Option<State>| state.map_or("–", State::name);
        page += &format!("| {} | {} | {:?} | {} |\n", cell(arrow.from), cell(arrow.to), arrow.by, arrow.when);
    }
    page
}

fn meaning(state: State) -> &'static str {
    match state {
        State::Invisible => "accepted, but no worker can lease it before its due time",
        State::Pending => "waits for a worker",
        State::Running => "leased to one worker",
        State::Completed => "ended with success; collected after the retention",
        State::Canceled => "ended by Cancel, by a purge or by its worker; collected after the retention",
        State::Errored => {
            "ended because no attempts were left, or by its worker; collected after a separate retention, or when the \
             queue has too many"
        }
    }
}

/// Where the picture has a transition: its curve, and the position and alignment of its label.
struct Route {
    from: Option<State>,
    to: Option<State>,
    curve: &'static str,
    label: (i32, i32, &'static str),
}

const fn route(from: Option<State>, to: Option<State>, curve: &'static str, label: (i32, i32, &'static str)) -> Route {
    Route { from, to, curve, label }
}

/// One route for each pair of different states in the table of transitions.
const ROUTES: &[Route] = &[
    route(None, PENDING, "M 51 230 L 271 230", (130, 222, "middle")),
    route(None, INVISIBLE, "M 46 219 Q 90 84 271 74", (84, 122, "end")),
    route(INVISIBLE, PENDING, "M 356 102 L 356 206", (366, 162, "start")),
    route(PENDING, INVISIBLE, "M 324 208 L 324 104", (315, 194, "end")),
    route(PENDING, RUNNING, "M 409 222 Q 515 196 621 222", (515, 200, "middle")),
    route(RUNNING, PENDING, "M 621 240 Q 515 268 409 242", (540, 276, "middle")),
    route(RUNNING, INVISIBLE, "M 660 208 Q 610 88 410 78", (588, 106, "start")),
    route(RUNNING, COMPLETED, "M 720 208 Q 770 90 911 80", (808, 126, "start")),
    route(RUNNING, ERRORED, "M 759 230 L 911 230", (833, 222, "middle")),
    route(RUNNING, CANCELED, "M 690 252 L 690 376", (700, 350, "start")),
    route(PENDING, CANCELED, "M 376 252 Q 470 370 621 386", (500, 346, "start")),
    route(CANCELED, PENDING, "M 621 398 Q 420 392 346 254", (384, 352, "end")),
    route(INVISIBLE, CANCELED, "M 276 92 C 120 190 170 462 636 417", (204, 340, "end")),
    route(ERRORED, PENDING, "M 950 252 C 800 345 540 345 398 253", (836, 312, "start")),
    route(COMPLETED, None, "M 1044 92 Q 1096 140 1104 215", (1092, 140, "start")),
    route(ERRORED, None, "M 1049 230 L 1090 230", (1070, 221, "middle")),
    route(CANCELED, None, "M 759 404 Q 1060 390 1100 245", (1000, 376, "start")),
];

/// The centre, in pixels, of each state's box.
const fn centre(state: State) -> (i32, i32) {
    match state {
        State::Invisible => (340, 80),
        State::Pending => (340, 230),
        State::Running => (690, 230),
        State::Completed => (980, 80),
        State::Canceled => (690, 398),
        State::Errored => (980, 230),
    }
}

/// `docs/images/states.svg`: boxes for states, an arrow for each pair of states, labelled with all its causes.
pub fn picture() -> String {
    let mut svg = String::from(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 1170 460\" role=\"img\" \
         font-family=\"ui-sans-serif,system-ui,sans-serif\" font-size=\"13\">\n\
         <title>The states of a message and the calls that change them</title>\n\
         <defs><marker id=\"tip\" viewBox=\"0 0 8 8\" refX=\"7\" refY=\"4\" markerWidth=\"8\" markerHeight=\"8\" \
         orient=\"auto\"><path d=\"M 0 0 L 8 4 L 0 8 z\" fill=\"#475569\"/></marker></defs>\n\
         <rect width=\"1170\" height=\"460\" rx=\"12\" fill=\"#f8fafc\"/>\n",
    );
    for Route { from, to, curve, label: (x, y, align) } in ROUTES {
        let causes = ARROWS.iter().filter(|arrow| (arrow.from, arrow.to) == (*from, *to));
        let causes: Vec<String> = causes.map(|arrow| format!("{:?}", arrow.by)).collect();
        svg += &format!(
            "<path d=\"{curve}\" fill=\"none\" stroke=\"#475569\" stroke-width=\"1.5\" marker-end=\"url(#tip)\"/>\n\
             <text x=\"{x}\" y=\"{y}\" text-anchor=\"{align}\" fill=\"#334155\" stroke=\"#f8fafc\" stroke-width=\"4\" \
             paint-order=\"stroke\">{}</text>\n",
            causes.join(", ")
        );
    }
    for state in State::ALL {
        let (x, y) = centre(state);
        let fill = match state {
            State::Running => "#2563eb",
            State::Completed => "#15803d",
            State::Errored => "#b91c1c",
            State::Canceled => "#6b7280",
            State::Invisible | State::Pending => "#1e293b",
        };
        svg += &format!(
            "<rect x=\"{}\" y=\"{}\" width=\"136\" height=\"40\" rx=\"20\" fill=\"{fill}\"/>\n\
             <text x=\"{x}\" y=\"{}\" text-anchor=\"middle\" fill=\"#ffffff\" font-size=\"16\" font-weight=\"600\">{}</text>\n",
            x - 68,
            y - 20,
            y + 5,
            state.name()
        );
    }
    svg += "<circle cx=\"42\" cy=\"230\" r=\"8\" fill=\"#1e293b\"/>\n\
            <circle cx=\"1102\" cy=\"230\" r=\"10\" fill=\"none\" stroke=\"#1e293b\" stroke-width=\"2\"/>\n\
            <circle cx=\"1102\" cy=\"230\" r=\"5\" fill=\"#1e293b\"/>\n</svg>\n";
    svg
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn q5_the_drawing_is_the_table() {
        for (file, expected) in [("states.md", page()), ("images/states.svg", picture())] {
            let path = format!("{}/../docs/{file}", env!("CARGO_MANIFEST_DIR"));
            if std::env::var_os("UPDATE_DOCS").is_some() {
                std::fs::write(&path, &expected).unwrap();
            }
            assert_eq!(std::fs::read_to_string(&path).unwrap_or_default(), expected, "{file}: run with UPDATE_DOCS=1");
        }
    }

    #[test]
    fn q5_the_picture_has_a_route_for_each_pair_of_states() {
        let moves: BTreeSet<_> = ARROWS.iter().filter(|a| a.from != a.to).map(|a| (a.from, a.to)).collect();
        let routes: BTreeSet<_> = ROUTES.iter().map(|route| (route.from, route.to)).collect();
        assert_eq!(routes.len(), ROUTES.len(), "a pair of states has two routes");
        assert_eq!(routes, moves);
    }
}
